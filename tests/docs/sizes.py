"""Lines of code by room: no docstrings, no comments, no blank lines, counted as tinygrad's sz.py does."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path

_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """Of a room: its files, all their lines, and their lines of code."""

    files: int
    lines: int
    code: int


def measure(folder: Path) -> Size:
    """Count the Python files of a folder, and of the folders in it."""
    texts = [path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))]
    return Size(
        len(texts), sum(text.count("\n") for text in texts), sum(map(count_code, texts))
    )


def count_code(text: str) -> int:
    """Return how many lines of a module hold code."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)
