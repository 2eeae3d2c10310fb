"""Reads a page's commands: the lines of its `bash` blocks, and the commands in its sentences."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("make", "shardbook", "tools/bench", "python", "torchrun", "pytest", "git", "apt")


@dataclass(frozen=True)
class Command:
    """A command, and the line of the page where the command or its block begins."""

    line: int
    text: str


def list_pages() -> list[Path]:
    """Return all pages of this working tree, in both languages."""
    folders = [ROOT / name for name in ("docs", "experiments", "solutions")]
    root_pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return [*root_pages, *sorted(page for folder in folders for page in folder.rglob("*.md"))]


def spanish_page(page: Path) -> Path:
    """Return the path of the page's Spanish translation."""
    return page.with_name(f"{page.stem}.es.md")


@cache
def read_fences(page: Path) -> list[Token]:
    """Return the fenced blocks of a page, also those in an indented hint."""
    text = re.sub(r"\A---\n.*?\n---\n", lambda m: "\n" * m[0].count("\n"), _read(page), flags=re.S)
    # A hint's body is indented by four, which plain Markdown takes for code.
    flat = re.sub(r"^ {4}(?=.*\S)", "", text, flags=re.M)
    return [token for token in MarkdownIt().parse(flat) if token.type == "fence"]


def read_commands(page: Path) -> list[Command]:
    """Return the commands that a page tells the reader to type, in order."""
    result = []
    for token in MarkdownIt().enable("table").parse(_read(page)):
        line = (token.map or [0])[0] + 1
        if token.type == "fence" and token.info == "bash":
            joined = token.content.replace("\\\n", "")
            result += [Command(line, text) for text in joined.splitlines() if text.strip()]
        for child in token.children or []:
            if child.type == "code_inline" and _is_typed(child.content):
                result.append(Command(line, child.content))
    return result


def _is_typed(text: str) -> bool:
    program, *words = text.split()
    if program not in PROGRAMS or "…" in text:
        return False
    return len(words) > (program == "shardbook")  # `shardbook check` is a name, not a command


def _read(page: Path) -> str:
    return page.read_text("utf-8")
