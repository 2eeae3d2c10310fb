"""The design: the list of the repository's folders, a line each.

A folder's line is the first sentence of its `__init__.py`, or is in tree.toml.
"""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from textwrap import shorten

from pages.blocks import LANGUAGES, ROOT, fence, fill_blocks, in_language

COLUMN, WIDTH = 34, 100

FOLDERS: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
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
