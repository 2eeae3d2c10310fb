"""The workbook's own pages: notes and solutions, which stay where they are and appear in the site.

A note lies in `experiments/LAB/`, a solution in `solutions/`, outside mkdocs's docs folder, so that
a code host shows them beside what they belong to. In the site each keeps that path.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from notelab.sources.answers import SourceError
from notelab.sources.git.command import GitCommand

FOLDERS = ("experiments", "solutions")
CHANGELOG = "CHANGELOG.md"  # lies at the root; in English alone, as release notes are
# What is published beside pages: nothing that a browser runs. An SVG is cleaned (`pictures`).
PICTURES = {".avif", ".gif", ".jpeg", ".jpg", ".png", ".svg", ".webp"}
DATA = {".csv", ".json", ".py", ".txt"}
ARCHIVES = {".bz2", ".gz", ".tar", ".tgz", ".xz", ".zip", ".zst"}
PUBLISHED = {".md"} | PICTURES | DATA | ARCHIVES
# A server may take a file's type from any ending of its name: `page.html.gz`, `tool.html.py`.
_RUNS = {
    *(".htm", ".html", ".js", ".mjs", ".pdf", ".shtml", ".svg", ".svgz", ".swf", ".xht", ".xhtml"),
    *(".xml", ".xsl", ".xslt"),
}
_log = logging.getLogger("mkdocs.hooks.sitelab")  # below "mkdocs": --strict counts its warnings


def found(root: Path, *, local: bool = False) -> dict[str, Path]:
    """Return the site path of each page and file below the workbook's folders, and where it lies.

    Pages are Markdown; files of the types in PUBLISHED come along. What git ignores stays out, but
    for the pages in a folder `local`, where `local` asks for them; so do hidden files and links to
    anywhere else. Outside a git checkout nobody can be asked what is ignored, which is logged.
    """
    listed = _listed_by_git(root)
    pages = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            place = path.relative_to(root)
            if not path.is_file() or path.is_symlink() or not _publishable(place):
                continue
            if "local" in place.parts:
                belongs = local and path.suffix == ".md"
            else:
                belongs = listed is None or place.as_posix() in listed
            if belongs:
                pages[place.as_posix()] = path
    return pages


def _listed_by_git(root: Path) -> set[str] | None:
    """Return the files that git doesn't ignore, None where there is no checkout to ask."""
    asked = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *FOLDERS]
    try:
        answer = GitCommand(None).run("-C", str(root), *asked)
        fault = answer.why() if answer.status else ""
    except SourceError as error:
        fault = str(error)
    if not fault:
        return {name.decode("utf-8", "surrogateescape") for name in answer.out.split(b"\0")}
    level = logging.WARNING if (root / ".git").exists() else logging.INFO
    _log.log(
        level, "Files that git ignores can't be told from others, and are published: %s", fault
    )
    return None


def labs_outside_nav(uris: Iterable[str], nav: object) -> set[str]:
    """Return the labs' folders of which the nav lists no page: a reader's own, usually.

    Args:
        uris: site paths of pages.
        nav: as mkdocs.yml has it; without one (None) mkdocs lists every page itself.
    """
    shown = {_lab(uri) for uri in _pages_of(nav)}
    return {_lab(uri) for uri in uris if uri.endswith(".md")} - shown - {""} if nav else set()


def _pages_of(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict | list):
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages_of(entry)


def _lab(uri: str) -> str:
    """Return the folder of the lab that a page belongs to, or an empty string."""
    parts = PurePosixPath(uri).parts
    return f"{parts[0]}/{parts[1]}" if len(parts) > 2 and parts[0] == FOLDERS[0] else ""


def local_results(uris: Iterable[str]) -> set[str]:
    """Return the folders, among those of pages, that hold what was measured here."""
    return {str(PurePosixPath(uri).parent) for uri in uris if "local" in PurePosixPath(uri).parts}


def _publishable(path: Path) -> bool:
    hidden = any(part.startswith((".", "__")) for part in path.parts)
    *inner, last = [suffix.lower() for suffix in path.suffixes] or [""]
    return not hidden and last in PUBLISHED and not _RUNS.intersection(inner)
