"""Formulas, drawn by KaTeX when the site is built, so that a page with math needs no script.

KaTeX runs in the embedded script engine that also parses diagrams and sees no file, network or
process. A page loads only KaTeX's style sheet and the fonts that the page uses. They are in this
folder, and `make vendor` refreshes them.
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


class RenderedFormula(msgspec.Struct, frozen=True):
    """A formula as HTML, or the error that KaTeX gave; one of the two is empty."""

    html: str = ""
    error: str = ""


class Formulas:
    """Draws each formula once; use it from one thread only. Starting takes about 0.1 s."""

    def __init__(self) -> None:
        self._context: Any = None
        self._rendered: dict[tuple[str, bool], RenderedFormula] = {}

    def draw(self, tex: str, *, display: bool) -> RenderedFormula:
        """Draw one formula; the result of a wrong or endless formula has an `error`.

        Args:
            tex: the formula, without its delimiters.
            display: whether it is on lines of its own; else it is inside a line.
        """
        key = (tex, display)
        if key not in self._rendered:
            self._rendered[key] = self._ask(tex, display)
        return self._rendered[key]

    def _ask(self, tex: str, display: bool) -> RenderedFormula:
        # A NUL would end the text early in the engine, a lone surrogate has no encoding.
        if "\0" in tex or any("\ud800" <= letter <= "\udfff" for letter in tex):
            return RenderedFormula(error="a character that no formula should hold (NUL, surrogate)")
        if self._context is None:
            self._context = _start()
        try:
            self._context.set_time_limit(SECONDS)
            answer = self._context.get("renderFormula")(tex, display)
        except Exception as fault:
            # Interrupted, out of memory or of stack: the engine's state is unreliable now.
            self._context = None
            return RenderedFormula(error=f"KaTeX gave up: {str(fault).strip().splitlines()[0]}")
        return msgspec.json.decode(answer, type=RenderedFormula)


def read_version() -> tuple[str, str]:
    """Return the vendored KaTeX's version and its script's SHA-256, both from VERSION."""
    number, digest = (HERE / "VERSION").read_text("ascii").split()
    return number, digest


def list_served_files() -> dict[str, Path]:
    """Return KaTeX's files that the site serves: their paths by their names in its folder."""
    fonts = sorted((HERE / "fonts").glob("*.woff2"))
    files = [HERE / "katex.min.css", HERE / "katex.LICENSE", *fonts]
    return {file.relative_to(HERE).as_posix(): file for file in files}


def _start() -> Any:
    script = (HERE / "katex.min.js").read_bytes()
    if sha256(script).hexdigest() != read_version()[1]:
        raise ValueError(
            f"{HERE / 'katex.min.js'} is not the file that VERSION names: restore it from git, "
            "or run `make vendor`"
        )
    context = new_context(MEMORY, STACK)
    context.eval(script.decode("utf-8"))
    context.eval((HERE / "render.js").read_text("utf-8"))
    return context
