"""Runs mermaid's parsers in an embedded script engine without files, network or processes.

A diagram is untrusted: it is passed to the engine as a value and never becomes part of a script,
and its time, memory and stack are limited. If a diagram breaks the engine, the next diagram gets a
new one. An engine runs in a thread of its own: Python handles Ctrl-C in the main thread only
between two of its own instructions, and a script may run for seconds.
"""

import re
import sys
import threading
import time
from hashlib import sha256
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from notelab.mermaid import BUNDLE, HERE, version
from notelab.mermaid.parsed_diagrams import EngineMissing, Parsed

# mermaid's own `maxTextSize`: longer diagrams draw a notice instead of themselves.
MAX_CHARACTERS = 50_000
SECONDS = 2.0
MEMORY = 512 << 20
# Smaller than the stack of a main thread: 1 MiB on Windows, 8 MiB elsewhere.
STACK = (512 << 10) if sys.platform == "win32" else (4 << 20)
_SCRIPTS = ("dom.js", "anchored.js", "copied.js", BUNDLE.name, "labels.js", "parse.js")
# The bundle's own name for `assignWithDepth`, which copied.js replaces by a faster function.
_MERGE = re.compile(r'(?<=,"assignWithDepth"\),)(\w+)=(\w+)(?=})')


class Engine:
    """Parses diagrams; use it from one thread only. It takes about half a second to start."""

    def __init__(self) -> None:
        """Load mermaid.

        Raises:
            EngineMissing: quickjs-ng cannot be imported, or the bundle is missing or damaged.
        """
        self._context: Any = _start()

    def parse(self, text: str) -> Parsed:
        """Parse one diagram; for a broken or too slow one, the result has `ok` False.

        Raises:
            EngineMissing: the engine had to be restarted and could not be.
        """
        refused = _refuse(text)
        if refused:
            return refused
        if self._context is None:
            self._context = _start()
        try:
            parsed, clean = _run(self._context, text)
        except Exception as fault:
            # After an interrupt, or without memory or stack, the engine's state is unreliable.
            self._context = None
            return _explain_failure(fault)
        if not clean:
            self._context = None
        return parsed


def _refuse(text: str) -> Parsed | None:
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
                ok=False, error="a character that text can't contain (NUL, surrogate)", line=number
            )
    return None


def _run(context: Any, text: str) -> tuple[Parsed, bool]:
    began = time.process_time()
    context.set_time_limit(SECONDS)
    context.get("parseDiagram")(text)
    while context.execute_pending_job():
        remaining = SECONDS - (time.process_time() - began)
        if remaining <= 0:
            raise TimeoutError("interrupted")
        context.set_time_limit(remaining)
    answer = context.get("takeAnswer")()
    if answer is None:
        return Parsed(ok=False, error="mermaid gave no answer", settled=False), False
    data = msgspec.json.decode(answer, type=_Answer)
    return data.parsed, data.clean


class _Answer(msgspec.Struct):
    parsed: Parsed
    clean: bool


def _explain_failure(fault: Exception) -> Parsed:
    message = str(fault).strip().split("\n")[0]
    if "interrupted" in message:
        reason = f"it takes mermaid more than {SECONDS:g} s to parse"
    elif "out of memory" in message or message == "null" or isinstance(fault, MemoryError):
        # "null": there was not even memory for the error message.
        reason = f"it takes mermaid more than {MEMORY >> 20} MiB to parse"
    elif "stack" in message.lower() or isinstance(fault, RecursionError):
        reason = "it is nested too deeply for mermaid to parse"
    else:
        reason = f"this diagram can't be checked: the script engine failed ({message})"
    return Parsed(ok=False, error=reason, settled=False)


def _start() -> Any:
    try:
        context = new_context(MEMORY, STACK)
    except ImportError as fault:
        raise EngineMissing(
            f"mermaid can't be run: the package quickjs-ng is not usable here ({fault})",
            hint="pip install quickjs-ng (it has wheels for Linux, macOS and Windows; "
            "elsewhere it builds with a C compiler)",
        ) from None
    for name in _SCRIPTS:
        context.eval(_speed_up(_script(name)) if name == BUNDLE.name else _script(name))
    return context


def _speed_up(bundle: str) -> str:
    return _MERGE.sub(r"\1=standIn.merge(\2)", bundle)


def new_context(memory: int, stack: int) -> Any:
    """Return a new script engine with limits for memory and stack, in bytes.

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
            f"mermaid can't be run: {name} can't be read ({fault})", hint="install shardbook again"
        ) from None
    if damaged:
        raise EngineMissing(
            f"mermaid can't be run: {name} is not the file that VERSION names",
            hint="install shardbook again, or run `make vendor` in the workbook",
        )
    return data.decode("utf-8")


_POLL_SECONDS = 0.2  # a signal is handled between two waits where a wait can't be interrupted
TimedParse = tuple[Parsed, float]


class EngineThread:
    """Parses diagrams one after another. The thread starts at once and ends with the process."""

    def __init__(self) -> None:
        """Start the thread with a stack large enough for the engine."""
        self._texts: SimpleQueue[str] = SimpleQueue()
        self._answers: SimpleQueue[TimedParse | Exception] = SimpleQueue()
        before = threading.stack_size(2 * STACK)
        try:
            threading.Thread(target=self._serve, daemon=True).start()
        finally:
            threading.stack_size(before)

    def parse(self, text: str) -> TimedParse:
        """Return the result for one diagram, and the processor seconds that it took.

        Raises:
            EngineMissing: the engine cannot be started.
        """
        self._texts.put(text)
        while True:
            try:
                answer = self._answers.get(timeout=_POLL_SECONDS)
            except Empty:
                continue
            if isinstance(answer, Exception):
                raise answer
            return answer

    def _serve(self) -> None:
        engine: Engine | None = None
        while True:
            text = self._texts.get()
            try:
                engine = engine or Engine()
                began = time.process_time()
                parsed = engine.parse(text)
                self._answers.put((parsed, time.process_time() - began))
            except Exception as fault:  # `parse` raises it in its own thread
                self._answers.put(fault)
