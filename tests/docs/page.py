"""Reads a page's commands: the lines of its `bash` blocks, and the commands in its sentences."""

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
# A worked problem: its number and text, then the fold with its name and its answer.
EXERCISE = re.compile(
    r"^\*\*(\d+)\. ((?:(?!\?\?\? ).*\n)+)"
    r'\?\?\? example ([\w-]+) "(?:Answer|Respuesta) \1"\n((?: {4}.*\n|\n)+)',
    re.M,
)
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


def english_page(page: Path) -> Path:
    """Return the path of the page that a Spanish page translates."""
    return page.with_name(page.name.replace(".es.md", ".md"))


def path_of(page: Path) -> str:
    """Return a page's path in this repository, as a test's id and a finding name it."""
    return page.relative_to(ROOT).as_posix()


@cache
def read_tokens(text: str) -> list[Token]:
    """Return a page's blocks and sentences, with those of an indented hint."""
    plain = re.sub(r"\A---\n.*?\n---\n", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    # A hint's body is indented by four, which plain Markdown takes for code.
    flat = re.sub(r"^ {4}(?=.*\S)", "", plain, flags=re.M)
    return MarkdownIt().enable("table").parse(flat)


def read_commands(page: Path) -> list[Command]:
    """Return the commands that a page tells the reader to type, in order."""
    result = []
    for token in MarkdownIt().enable("table").parse(page.read_text("utf-8")):
        line = (token.map or [0])[0] + 1
        if token.type == "fence" and token.info == "bash":
            joined = token.content.replace("\\\n", "")
            result += [Command(line, text) for text in joined.splitlines() if text.strip()]
        for child in token.children or []:
            if child.type == "code_inline" and _is_typed(child.content):
                result.append(Command(line, child.content))
    return result


def read_outputs(page: Path) -> dict[int, list[str]]:
    """Return the lines that a page shows after a block of commands, by the line of the block."""
    fences = [
        token for token in MarkdownIt().parse(page.read_text("utf-8")) if token.type == "fence"
    ]
    return {
        block.map[0] + 1: [line for line in shown.content.splitlines() if line.strip()]
        for block, shown in pairwise(fences)
        if (block.info, shown.info) == ("bash", "text") and block.map
    }


def _is_typed(text: str) -> bool:
    program, *words = text.split()
    if program not in PROGRAMS or "…" in text:
        return False
    return len(words) > (program == "shardbook")  # `shardbook check` is a name, not a command
