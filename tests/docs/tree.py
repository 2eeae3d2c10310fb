"""The repository's tree, a line per folder and per file, from what each file says of itself first.

    python -m tests.docs.tree        writes it into docs/reference/design.md and design.es.md

A file's line is the first sentence of its docstring, of its first comment, or its title; a folder's
is its `__init__.py`'s or stands below. `test_tree` holds that the pages have what is made here.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import PurePosixPath
from textwrap import shorten

from tests.docs.page import ROOT

PAGES = [ROOT / "docs" / "reference" / name for name in ("design.md", "design.es.md")]
BLOCK = re.compile(r"<!-- tree -->.*?<!-- /tree -->", re.DOTALL)
COMMENT = re.compile(r"(?:#!.*\n)?(?:(?:/\*|\{#)((?:.|\n)*?)(?:\*/|#\})|((?:(?:#|//).*\n)+))")
COLUMN, WIDTH = 34, 100

# Folders in which nothing speaks for the whole, by path or by name.
FOLDERS = {
    ".github": "What a code host runs for a fork.",
    ".github/workflows": "For a fork, and to be copied.",
    ".ci": "What a pull request must pass.",
    ".ci/lock": "What each layer of the environment is, to the byte.",
    "docs": "What a reader reads; each page stands beside its .es.md, left out here.",
    "docs/assets": "Pictures, and what the site adds to its theme.",
    "docs/labs": "The labs' pages.",
    "docs/measured": "What the pages of speed, promise and since are made from.",
    "docs/reference": "What one looks up.",
    "docs/reference/rules": "A page for each rule; `shardbook explain` shows the same.",
    "docs/theory": "The theory's pages.",
    "experiments": "What a learner produces, a lab each.",
    "solutions": "Reference answers, for when yours are committed.",
    "tools": "What the workbook runs; the import root.",
    "tools/notelab/commands/blank": "What the pages of a new lab are filled in from.",
    "tools/sitelab/katex/fonts": "What KaTeX's style names.",
    "tests": "The same folders as in tools, each beside what it tests.",
    "tests/costlab/data": "Results of real machines, small.",
    "tests/docs": "What the pages say is held: commands, links, languages, this tree.",
    "tests/fresh": "The set-up, as a stranger meets it.",
    "tests/shardlab/labs": "What the labs' pages and programs say, run.",
    "tests/shardlab/oracles": "Ours beside megatron-core and torch, trained alike.",
    "tests/site": "The site, built, and looked at in a real browser.",
    "benchmark": "What `make benchmark` measures.",
    "figures": "RESULTS' figures, drawn by the bench.",
    "javascripts": "What a page does once it is open.",
    "network": "Nodes made of network namespaces.",
    "results": "Measured, committed; local/ is not.",
    "screenshots": "The README's, by `make screenshots`.",
    "stand_ins": "What is run in place of what takes long.",
    "api": "The kernels' API, a page a room.",
    "stylesheets": "How a page looks.",
    "templates": "What generated pages have around their tables, by jinja2.",
}
SPEAKERS = ("__init__.py", "lab.toml")
# Files that have no place for a comment.
FILES = {
    "LICENSE": "Apache License 2.0.",
    "*.LICENSE": "The bundle's own licence.",
    "*.NOTICES": "What others' packages the bundle holds, and their licences.",
    "*.min.*": "Vendored, as it was published.",
    "missing_page.html": "The 404.html of the site, whole.",
    "VERSION": "The bundle's version, and its script's SHA-256.",
    "citations.lock": "What each citation's lines are, by hash.",
    "lab.toml": "When the lab is done, and what it reads, as data.",
    "flowchart.en.txt": "A diagram that draws, to be replaced.",
    "gantt.en.txt": "A diagram that draws right, to be replaced.",
    "*.en.txt": "One part of a blank page.",
    "*.es.txt": "The same in Spanish.",
    "repository.txt": "The conditions of a lab about any repository.",
    "untouched.txt": "Of the sample, the places whose text is the same in both releases.",
    "*-sha.txt": "A pin: the one place where that commit stands.",
    ".gitignore": "What stays out of git.",
    "check.svg": "A finding, drawn for the README.",
    "reference.csv": "The same for a spreadsheet, a metric a line.",
    "reference.json": "The run that RESULTS and CLAIMS are made from.",
    "seen.json": "What every room of the museum showed.",
    "drawn.json": "What the compositions drawn against one process came to.",
}
# Many of a kind in one folder are counted, not listed.
ALIKE = ("N*.md", "*.json", "*.png", "*.svg", "*.woff2")


def tracked() -> list[PurePosixPath]:
    """Return what git knows of, or would: neither what it ignores, nor translations."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    found = {PurePosixPath(name) for name in listed.split("\0") if (ROOT / name).is_file()}
    return sorted(path for path in found if not path.name.endswith(".es.md"))


def of_file(path: PurePosixPath) -> str:
    """Return a file's line: what it says of itself first, or what is said for its kind."""
    known = [line for pattern, line in FILES.items() if fnmatch(path.name, pattern)]
    return known[0] if known else first(path)


def first(path: PurePosixPath) -> str:
    """Return the first sentence of a file's docstring or comment, or its title."""
    text = (ROOT / path).read_text("utf-8")
    if path.suffix == ".py" or text.startswith("#!/usr/bin/env python"):
        return sentence(ast.get_docstring(ast.parse(text)) or "")
    if path.suffix == ".md":
        title = re.search(r"^# (.+)$", text, re.M)
        return title[1] if title else ""
    said = COMMENT.match(text)
    bare = re.sub(r"^\s*(?:\*|//|#)", "", said[1] or said[2], flags=re.M) if said else ""
    return sentence(bare)


def of_folder(path: PurePosixPath) -> str:
    """Return a folder's line; a folder of tests has that of what it tests."""
    mirrored = PurePosixPath(str(path).replace("tests/site/", "tests/sitelab/"))
    mirrored = PurePosixPath("tools", *mirrored.parts[1:])
    return (
        FOLDERS.get(str(path))
        or next((first(path / name) for name in SPEAKERS if (ROOT / path / name).is_file()), "")
        or FOLDERS.get(path.name)
        or (f"Tests of {mirrored}." if (ROOT / mirrored).is_dir() else "")
    )


def sentence(text: str) -> str:
    """Return the first sentence of a docstring or a comment, on one line."""
    first = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", first)[0]


@cache
def tree() -> str:
    """Return the whole tree as the pages have it."""
    rows = [
        f"{'  ' * depth + name:<{COLUMN}}  {shorten(line, WIDTH, placeholder=' …')}".rstrip()
        for depth, name, line in walk(tracked(), PurePosixPath())
    ]
    return "\n".join(["<!-- tree -->", "```text", *rows, "```", "<!-- /tree -->"])


def walk(held: list[PurePosixPath], folder: PurePosixPath) -> Iterator[tuple[int, str, str]]:
    """Yield what stands in a folder, files before folders: depth, name and line."""
    depth = len(folder.parts)
    inside = [path for path in held if path.parent == folder and path.name != "__init__.py"]
    alike = [p for p in ALIKE if sum(fnmatch(path.name, p) for path in inside) > 1]
    for path in inside:
        if not any(fnmatch(path.name, pattern) for pattern in alike):
            yield depth, path.name, of_file(path)
    for pattern in alike:
        yield depth, pattern, f"{sum(fnmatch(path.name, pattern) for path in inside)} of them."
    for below in sorted({path.parents[-depth - 2] for path in held if folder in path.parents[1:]}):
        yield depth, f"{below.name}/", of_folder(below)
        yield from walk([path for path in held if below in path.parents], below)


def main() -> None:
    """Write the tree into both pages."""
    made = tree()
    for page in PAGES:
        page.write_text(BLOCK.sub(lambda _: made, page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
