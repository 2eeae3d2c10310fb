"""The design: the list of the repository's folders, a line each.

A folder's line is the first sentence of its `__init__.py`, or is in FOLDERS below.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from textwrap import shorten

from pages.blocks import LANGUAGES, ROOT, fence, fill_blocks, in_language

COLUMN, WIDTH = 34, 100

# Folders without an `__init__.py` that could describe them, by path or by name.
FOLDERS = {
    ".github": "The workflow for a fork on a code host.",
    ".github/workflows": "A workflow that a fork can use or copy.",
    ".ci": "The checks that a pull request must pass.",
    ".ci/lock": "The exact versions of each layer of the environment.",
    "docs": "The pages of the site, in English and Spanish.",
    "docs/assets": "Pictures, and what the site adds to its theme.",
    "docs/assets/figures": "The figures of RESULTS, drawn by the bench.",
    "docs/labs": "The pages of the labs.",
    "docs/measured": "Committed measurements that pages are generated from.",
    "docs/reference": "The pages to look things up in.",
    "docs/reference/api": "The API of the kernels, a page for each room.",
    "docs/reference/rules": "A page for each rule; `shardbook explain` shows the same text.",
    "docs/theory": "The pages of the theory.",
    "experiments": "What a learner produces, a folder for each lab.",
    "solutions": "Reference answers, to be read after your own are committed.",
    "tools": "All programs of the workbook; the root of their imports.",
    "tools/notelab/commands/blank": "The templates of a new lab's pages.",
    "tools/sitelab/katex/fonts": "The fonts that KaTeX's style sheet names.",
    "tests": "The tests, in the same folders as in tools.",
    "tests/costlab/data": "Small results of real machines.",
    "tests/docs": "Tests of the pages: commands, links, languages, this list.",
    "tests/fresh": "Tests of the set-up on a fresh machine.",
    "tests/shardlab/labs": "Tests that run what the labs' pages and programs say.",
    "tests/shardlab/oracles": "Tests that train our kernels and megatron-core or torch alike.",
    "tests/site": "Tests of the built site, in a real browser.",
    "benchmark": "The measurements of `make benchmark`.",
    "docs/assets/javascripts/figures": "The scripts of the figures that a reader can play with.",
    "experiments/35-allreduce-costs/figures": "The figures of RESULTS, in the lab.",
    "javascripts": "The scripts of an open page.",
    "network": "Nodes made of network namespaces.",
    "results": "Committed measurements; local/ is ignored by git.",
    "screenshots": "The pictures of the README, by `make screenshots`.",
    "stand_ins": "Fast replacements of slow programs, for tests.",
    "stylesheets": "The styles of a page.",
    "templates": "The jinja2 templates of generated pages.",
}
DESCRIBED_BY = ("__init__.py", "lab.toml")


def list_files() -> list[PurePosixPath]:
    """Return the files that git tracks or would track, without the Spanish pages."""
    output = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    paths = {PurePosixPath(name) for name in output.split("\0") if (ROOT / name).is_file()}
    return sorted(path for path in paths if not path.name.endswith(".es.md"))


def describe(folder: PurePosixPath) -> str:
    """Return a folder's line; a folder of tests is described by the folder that it tests."""
    tested = PurePosixPath(str(folder).replace("tests/site/", "tests/sitelab/"))
    tested = PurePosixPath("tools", *tested.parts[1:])
    return (
        FOLDERS.get(str(folder))
        or next((first_line(folder / n) for n in DESCRIBED_BY if (ROOT / folder / n).is_file()), "")
        or FOLDERS.get(folder.name)
        or (f"Tests of {tested}." if (ROOT / tested).is_dir() else "")
    )


def first_line(path: PurePosixPath) -> str:
    """Return the first sentence of a module's docstring or of a data file's first comment."""
    text = (ROOT / path).read_text("utf-8")
    if path.suffix == ".py":
        return sentence(ast.get_docstring(ast.parse(text)) or "")
    comment = re.match(r"(?:#.*\n)+", text)
    return sentence(re.sub(r"^#", "", comment[0], flags=re.M)) if comment else ""


def sentence(text: str) -> str:
    """Return the first sentence of a docstring or a comment, on one line."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0]


@cache
def tree() -> str:
    """Return the list of folders, as the pages have it."""
    folders = {parent for path in list_files() for parent in path.parents if parent.parts}
    rows = [
        f"{'  ' * (len(folder.parts) - 1) + folder.name + '/':<{COLUMN}}  "
        f"{shorten(describe(folder), WIDTH, placeholder=' …')}".rstrip()
        for folder in sorted(folders)
    ]
    return fence("\n".join(rows))


def render() -> Iterator[tuple[Path, str]]:
    """Yield the page in each language."""
    for language in LANGUAGES:
        path = in_language("docs/reference/design", language)
        yield path, fill_blocks(path, {"tree": tree()})
