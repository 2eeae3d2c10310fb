"""Blocks of a page: the text between the lines `<!-- NAME -->` and `<!-- /NAME -->`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "docs" / "measured"
LANGUAGES = ("en", "es")


class PageError(Exception):
    """A page can't be made; the message says why, in a line."""


def in_language(page: str, language: str) -> Path:
    """Return the path of a page, named without its ending and from the root, in a language."""
    return ROOT / f"{page}{'' if language == LANGUAGES[0] else f'.{language}'}.md"


def lab_page(lab: str, language: str) -> Path:
    """Return the path of a lab's page."""
    return in_language(f"docs/labs/{lab}", language)


def solution_page(lab: str, language: str) -> Path:
    """Return the path of the answers to a lab's exercises."""
    return in_language(f"solutions/{lab}", language)


def python_blocks(path: Path) -> list[str]:
    """Return a page's Python, block by block."""
    return re.findall(r"^```python\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S)


def read_block(path: Path, block: str) -> str:
    """Return what a page shows in a block."""
    return _split(path, path.read_text("utf-8"), block)[1].rstrip("\n")


def fill_blocks(path: Path, blocks: Mapping[str, str]) -> str:
    """Return a page's text with each block's new text in its place."""
    text = path.read_text("utf-8")
    for block, new in blocks.items():
        before, _, after = _split(path, text, block)
        text = f"{before}{new}\n{after}"
    return text


def read_words(name: str) -> dict[str, dict[str, Any]]:
    """Return the words of a page's tables, by language."""
    words = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
    return dict(words[name])


def table(head: list[str], align: str, rows: list[list[str]]) -> str:
    """Return a Markdown table; `align` has one of `<` and `>` for each column."""
    rules = ["--:" if side == ">" else "---" for side in align]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rules, *rows])


def fence(text: str) -> str:
    """Return a text as a block of output."""
    return f"```text\n{text}\n```"


def _split(path: Path, text: str, block: str) -> tuple[str, str, str]:
    """Cut a page after the block's first mark and before its second."""
    mark = re.escape(block)
    match = re.search(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- /{mark} -->)", text, re.DOTALL)
    if match is None:
        raise PageError(
            f"{path.relative_to(ROOT)} has no <!-- {block} --> and <!-- /{block} --> "
            "on lines of their own"
        )
    return text[: match.start()], match[0], text[match.end() :]
