"""Runs mermaid's own parsers in an embedded script engine that sees no file, network or process.

A diagram is untrusted: it is handed over as a value, never spliced into a script, and its time,
memory and stack are bounded. Whatever breaks the engine costs that engine, not the next diagram.
"""

import re
import sys
import time
from hashlib import sha256
from typing import Any

import msgspec

from notelab.mermaid import BUNDLE, HERE, version
from notelab.mermaid.parsed import EngineMissing, Parsed

# mermaid's own `maxTextSize`: longer diagrams draw a notice instead of themselves.
MAX_CHARACTERS = 50_000
SECONDS = 2.0
MEMORY = 512 << 20
# Below what a main thread has: 1 MiB on Windows, 8 MiB elsewhere.
STACK = (512 << 10) if sys.platform == "win32" else (4 << 20)
_SCRIPTS = ("dom.js", "anchored.js", "copied.js", BUNDLE.name, "labels.js", "parse.js")
# The bundle's own name for `assignWithDepth`, which copied.js makes quick.
_MERGE = re.compile(r'(?<=,"assignWithDepth"\),)(\w+)=(\w+)(?=})')


class Engine:
    """Parses diagrams; use it from one thread only. Starting takes about half a second."""

    def __init__(self) -> None:
        """Load mermaid.

        Raises:
            EngineMissing: quickjs-ng can't be imported, or the bundle is missing or damaged.
        """
        self._context: Any = _start()

    def parse(self, text: str) -> Parsed:
        """Parse one diagram; a broken or runaway one is an answer with `ok` False, not an error.

        Raises:
            EngineMissing: the engine had to be started anew and couldn't be.
        """
        refusal = _refusal(text)
        if refusal:
            return refusal
        if self._context is None:
            self._context = _start()
        try:
            parsed, clean = _run(self._context, text)
        except Exception as fault:
            # Interrupted, out of memory or of stack: what the engine holds can't be relied on.
            self._context = None
            return _broken(fault)
        if not clean:
            self._context = None
        return parsed


def _refusal(text: str) -> Parsed | None:
    if len(text) > MAX_CHARACTERS:
        return Parsed(
            ok=False,
            error=f"{len(text):,} characters where mermaid draws at most {MAX_CHARACTERS:,}",
            line=1,
        )
    for number, line in enumerate(text.split("\n"), 1):
        # A NUL would end the text early in the engine, a lone surrogate has no encoding.
        if "\0" in line or any("\ud800" <= letter <= "\udfff" for letter in line):
            return Parsed(
                ok=False, error="a character that no text should hold (NUL, surrogate)", line=number
            )
    return None


def _run(context: Any, text: str) -> tuple[Parsed, bool]:
    began = time.process_time()
    context.set_time_limit(SECONDS)
    context.get("parseDiagram")(text)
    while context.execute_pending_job():
        left = SECONDS - (time.process_time() - began)
        if left <= 0:
            raise TimeoutError("interrupted")
        context.set_time_limit(left)
    answer = context.get("takeAnswer")()
    if answer is None:
        return Parsed(ok=False, error="mermaid came to no answer", settled=False), False
    data = msgspec.json.decode(answer, type=_Answer)
    return data.parsed, data.clean


class _Answer(msgspec.Struct):
    parsed: Parsed
    clean: bool


def _broken(fault: Exception) -> Parsed:
    said = str(fault).strip().split("\n")[0]
    if "interrupted" in said:
        why = f"it takes mermaid more than {SECONDS:g} s to parse"
    elif "out of memory" in said or said == "null" or isinstance(fault, MemoryError):
        # "null": there was no memory left to make the error with.
        why = f"it takes mermaid more than {MEMORY >> 20} MiB to parse"
    elif "stack" in said.lower() or isinstance(fault, RecursionError):
        why = "it is nested too deeply for mermaid to parse"
    else:
        why = f"this diagram can't be checked: the script engine failed ({said})"
    return Parsed(ok=False, error=why, settled=False)


def _start() -> Any:
    try:
        context = bounded(MEMORY, STACK)
    except ImportError as fault:
        raise EngineMissing(
            f"mermaid can't be run: the package quickjs-ng is not usable here ({fault})",
            hint="pip install quickjs-ng (it has wheels for Linux, macOS and Windows; "
            "elsewhere it builds with a C compiler)",
        ) from None
    for name in _SCRIPTS:
        context.eval(_quick(_script(name)) if name == BUNDLE.name else _script(name))
    return context


def _quick(bundle: str) -> str:
    return _MERGE.sub(r"\1=standIn.merge(\2)", bundle)


def bounded(memory: int, stack: int) -> Any:
    """Return a new script engine that may take so many bytes.

    Raises:
        ImportError: there is none on this machine.
    """
    import quickjs  # type: ignore[import-untyped]

    context = quickjs.Context()
    context.set_memory_limit(memory)
    context.set_max_stack_size(stack)
    return context


def _script(name: str) -> str:
    try:
        data = (HERE / name).read_bytes()
        damaged = name == BUNDLE.name and sha256(data).hexdigest() != version()[1]
    except (OSError, ValueError) as fault:
        raise EngineMissing(
            f"mermaid can't be run: {name} can't be read ({fault})", hint="install shardbook anew"
        ) from None
    if damaged:
        raise EngineMissing(
            f"mermaid can't be run: {name} is not the file that VERSION names",
            hint="install shardbook anew, or run `make vendor` in the workbook",
        )
    return data.decode("utf-8")
