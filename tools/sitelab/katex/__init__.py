"""Formulas, drawn by KaTeX when the site is built, so that a page with math needs no script.

KaTeX runs in the embedded script engine that parses diagrams too, which sees no file, network or
process. What a page loads is its style sheet and the fonts that it uses; they lie here, and are
refreshed by `make vendor`.
"""

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from notelab.mermaid.engine import new_context

HERE = Path(__file__).parent
SECONDS = 2.0
MEMORY = 128 << 20
STACK = 512 << 10


class Drawn(msgspec.Struct, frozen=True):
    """A formula as HTML, or why there is none; one of the two is empty."""

    html: str = ""
    error: str = ""


class Formulas:
    """Draws formulas, each once; use it from one thread only. Starting takes about 0.1 s."""

    def __init__(self) -> None:
        self._context: Any = None
        self._drawn: dict[tuple[str, bool], Drawn] = {}

    def draw(self, tex: str, *, display: bool) -> Drawn:
        """Draw one formula; a wrong or runaway one is an answer with `error`.

        Args:
            tex: as KaTeX takes it, without its delimiters.
            display: on lines of its own, or within a line.
        """
        key = (tex, display)
        if key not in self._drawn:
            self._drawn[key] = self._ask(tex, display)
        return self._drawn[key]

    def _ask(self, tex: str, display: bool) -> Drawn:
        # A NUL would end the text early in the engine, a lone surrogate has no encoding.
        if "\0" in tex or any("\ud800" <= letter <= "\udfff" for letter in tex):
            return Drawn(error="a character that no formula should hold (NUL, surrogate)")
        if self._context is None:
            self._context = _start()
        try:
            self._context.set_time_limit(SECONDS)
            answer = self._context.get("renderFormula")(tex, display)
        except Exception as fault:
            # Interrupted, out of memory or of stack: what the engine holds can't be relied on.
            self._context = None
            return Drawn(error=f"KaTeX gave up: {str(fault).strip().splitlines()[0]}")
        return msgspec.json.decode(answer, type=Drawn)


def version() -> tuple[str, str]:
    """Return the vendored KaTeX's version and its script's SHA-256, both from VERSION."""
    number, digest = (HERE / "VERSION").read_text("ascii").split()
    return number, digest


def served() -> dict[str, Path]:
    """Return what the site serves of KaTeX: where below its folder there, and where it lies."""
    fonts = sorted((HERE / "fonts").glob("*.woff2"))
    files = [HERE / "katex.min.css", HERE / "katex.LICENSE", *fonts]
    return {file.relative_to(HERE).as_posix(): file for file in files}


def _start() -> Any:
    script = (HERE / "katex.min.js").read_bytes()
    if sha256(script).hexdigest() != version()[1]:
        raise ValueError(
            f"{HERE / 'katex.min.js'} is not the file that VERSION names: restore it from git, "
            "or run `make vendor`"
        )
    context = new_context(MEMORY, STACK)
    context.eval(script.decode("utf-8"))
    context.eval((HERE / "render.js").read_text("utf-8"))
    return context
