"""Finds the workbook's own pages, notes and solutions, which are outside mkdocs's docs folder.

A note is in `experiments/LAB/` and a solution in `solutions/`, so that a code host shows them next
to the files that they belong to. In the site each has the same path. The kernels' source is
published too, since pages link to it.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path, PurePosixPath

from notelab.sources.answers import SourceError
from notelab.sources.git.git_command import GitCommand
from sitelab.pages.allowed_html import ALLOWED

FOLDERS = ("experiments", "solutions", "tools/shardlab")
CHANGELOG = "CHANGELOG.md"  # at the root, and only in English, as release notes are
PUBLISHED = {*chain(*ALLOWED["files"].values())}
_RUN_BY_BROWSERS = {*ALLOWED["inner-endings"]["refused"]}
_log = logging.getLogger("mkdocs.hooks.sitelab")  # below "mkdocs": --strict counts its warnings


def find_files(root: Path, *, local: bool = False) -> dict[str, Path]:
    """Return the pages and files below the workbook's folders: their paths, by their site paths.

    Pages are Markdown, and files have a type in PUBLISHED. Files that git ignores, hidden files and
    symbolic links are left out; pages in a folder `local` are included if `local` is true. Outside
    a git checkout it is unknown which files git would ignore, and a message is logged.
    """
    not_ignored = _list_with_git(root)
    pages = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            site_path = path.relative_to(root)
            if not path.is_file() or path.is_symlink() or not _is_publishable(site_path):
                continue
            if "local" in site_path.parts:
                is_included = local and path.suffix == ".md"
            else:
                is_included = not_ignored is None or site_path.as_posix() in not_ignored
            if is_included:
                pages[site_path.as_posix()] = path
    return pages


def _list_with_git(root: Path) -> set[str] | None:
    """Return the files that git doesn't ignore, or None if this is no git checkout."""
    arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *FOLDERS]
    try:
        answer = GitCommand(None).run("-C", str(root), *arguments)
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


def find_labs_outside_nav(uris: Iterable[str], nav: object) -> set[str]:
    """Return the folders of labs of which the nav lists no page: local labs, usually.

    Args:
        uris: site paths of pages.
        nav: the nav of mkdocs.yml; without a nav (None) mkdocs lists every page itself.
    """
    in_nav = {_find_lab(uri) for uri in _pages_of(nav)}
    return {_find_lab(uri) for uri in uris if uri.endswith(".md")} - in_nav - {""} if nav else set()


def _pages_of(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict | list):
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages_of(entry)


def _find_lab(uri: str) -> str:
    """Return the folder of the lab that a page belongs to, or "" if it belongs to none."""
    parts = PurePosixPath(uri).parts
    return f"{parts[0]}/{parts[1]}" if len(parts) > 2 and parts[0] == FOLDERS[0] else ""


def find_local_results(uris: Iterable[str]) -> set[str]:
    """Return the folders, among those of pages, that hold results of this machine."""
    return {str(PurePosixPath(uri).parent) for uri in uris if "local" in PurePosixPath(uri).parts}


def _is_publishable(path: Path) -> bool:
    hidden = any(part.startswith((".", "__")) for part in path.parts)
    *inner, last = [suffix.lower() for suffix in path.suffixes] or [""]
    return not hidden and last in PUBLISHED and not _RUN_BY_BROWSERS.intersection(inner)
