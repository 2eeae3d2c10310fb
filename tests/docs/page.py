"""A page's commands: what its `bash` blocks hold, and the commands that stand in its sentences."""

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
    """A command, and the line of its page where it, or its block, begins."""

    line: int
    text: str


def every_page() -> list[Path]:
    """Return all pages, in both languages, as this working tree has them."""
    folders = [ROOT / name for name in ("docs", "experiments", "solutions")]
    doors = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return [*doors, *sorted(page for one in folders for page in one.rglob("*.md"))]


def spanish(page: Path) -> Path:
    """Return the page's translation."""
    return page.with_name(f"{page.stem}.es.md")


@cache
def fences(page: Path) -> list[Token]:
    """Return the fenced blocks, those in an indented hint too."""
    text = re.sub(r"\A---\n.*?\n---\n", lambda m: "\n" * m[0].count("\n"), _of(page), flags=re.S)
    # A hint's body is indented by four, which plain Markdown takes for code.
    flat = re.sub(r"^ {4}(?=.*\S)", "", text, flags=re.M)
    return [token for token in MarkdownIt().parse(flat) if token.type == "fence"]


def commands(page: Path) -> list[Command]:
    """Return what a reader is told to type, in order."""
    found = []
    for token in MarkdownIt().enable("table").parse(_of(page)):
        line = (token.map or [0])[0] + 1
        if token.type == "fence" and token.info == "bash":
            joined = token.content.replace("\\\n", "")
            found += [Command(line, text) for text in joined.splitlines() if text.strip()]
        for child in token.children or []:
            if child.type == "code_inline" and _is_typed(child.content):
                found.append(Command(line, child.content))
    return found


def _is_typed(text: str) -> bool:
    program, *words = text.split()
    if program not in PROGRAMS or "…" in text:
        return False
    return len(words) > (program == "shardbook")  # `shardbook check` is a name, not a command


def _of(page: Path) -> str:
    return page.read_text("utf-8")
