"""The workbook's own pages: notes and solutions, which stay where they are and appear in the site.

A note lies in `experiments/LAB/`, a solution in `solutions/`, outside mkdocs's docs folder, so that
a code host shows them beside what they belong to. In the site each keeps that path.
"""

from pathlib import Path

FOLDERS = ("experiments", "solutions")


def found(root: Path) -> dict[str, Path]:
    """Return the site path of each page and file below the workbook's folders, and where it lies.

    Pages are Markdown; pictures and the files that pages link to (a pin, a lab's program) come
    along as they are. What git would ignore, `results/local/` and caches, stays out; so do links
    to anywhere else.
    """
    pages = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and _belongs(path.relative_to(root)) and not path.is_symlink():
                pages[path.relative_to(root).as_posix()] = path
    return pages


def _belongs(path: Path) -> bool:
    hidden = any(part.startswith((".", "__")) for part in path.parts)
    return not hidden and "local" not in path.parts
