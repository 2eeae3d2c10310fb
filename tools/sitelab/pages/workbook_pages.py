"""The workbook's own pages: notes and solutions, which stay where they are and appear in the site.

A note lies in `experiments/LAB/`, a solution in `solutions/`, outside mkdocs's docs folder, so that
a code host shows them beside what they belong to. In the site each keeps that path.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

FOLDERS = ("experiments", "solutions")
CHANGELOG = "CHANGELOG.md"  # lies at the root; in English alone, as release notes are


def found(root: Path, *, local: bool = False) -> dict[str, Path]:
    """Return the site path of each page and file below the workbook's folders, and where it lies.

    Pages are Markdown; pictures and the files that pages link to (a pin, a lab's program) come
    along as they are. What git would ignore, `results/local/` and caches, stays out, but for the
    pages in there where `local` asks for them; so do links to anywhere else.
    """
    pages = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            belongs = _belongs(path.relative_to(root), local=local)
            if path.is_file() and belongs and not path.is_symlink():
                pages[path.relative_to(root).as_posix()] = path
    return pages


def labs_outside_nav(uris: Iterable[str], nav: object) -> set[str]:
    """Return the labs' folders of which the nav lists no page: a reader's own, usually.

    Args:
        uris: site paths of pages.
        nav: as mkdocs.yml has it; without one (None) mkdocs lists every page itself.
    """
    shown = {_lab(uri) for uri in _listed(nav)}
    return {_lab(uri) for uri in uris if uri.endswith(".md")} - shown - {""} if nav else set()


def _listed(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict | list):
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _listed(entry)


def _lab(uri: str) -> str:
    """Return the folder of the lab that a page belongs to, or an empty string."""
    parts = PurePosixPath(uri).parts
    return f"{parts[0]}/{parts[1]}" if len(parts) > 2 and parts[0] == FOLDERS[0] else ""


def local_results(uris: Iterable[str]) -> set[str]:
    """Return the folders, among those of pages, that hold what was measured here."""
    return {str(PurePosixPath(uri).parent) for uri in uris if "local" in PurePosixPath(uri).parts}


def _belongs(path: Path, *, local: bool) -> bool:
    hidden = any(part.startswith((".", "__")) for part in path.parts)
    return not hidden and ("local" not in path.parts or (local and path.suffix == ".md"))
