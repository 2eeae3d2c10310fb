"""Where a page can be edited: its file's address on the code host that the workbook came from.

Not mkdocs's `repo_url`, for which Material asks the host's API; and mkdocs takes every page to lie
below docs/, where a note doesn't.
"""

import re
from configparser import ConfigParser, Error
from pathlib import Path
from urllib.parse import quote

# The forms of git's addresses: https://HOST/PATH.git, ssh://git@HOST/PATH, git@HOST:PATH
_ADDRESS = re.compile(r"(?:https://(?:[^@/]+@)?|ssh://(?:[^@/]+@)?|[\w.-]+@)([\w.-]+)[/:](.+)")
_HOSTS = {"github.com": "edit", "gitlab.com": "-/edit", "codeberg.org": "_edit"}


def base(root: Path, asked: str) -> str:
    """Return the address that a file's path is put behind, or "" where none is known.

    Args:
        root: the repository's folder.
        asked: what the configuration says; else the clone's `origin` is looked at, if it lies on a
            host whose form is known.
    """
    if asked:
        return asked.rstrip("/") + "/"
    config = ConfigParser(strict=False, interpolation=None)
    try:
        config.read(root / ".git" / "config", "utf-8")
        url = config.get('remote "origin"', "url", fallback="")
    except (Error, UnicodeDecodeError):
        return ""
    return of_remote(url)


def of_remote(url: str) -> str:
    """Return the address to edit files of a git remote, or "" for an unknown host.

    >>> of_remote("git@github.com:someone/shardbook.git")
    'https://github.com/someone/shardbook/edit/main/'
    >>> of_remote("/srv/shardbook.git")
    ''
    """
    match = _ADDRESS.fullmatch(url.strip())
    if not match or match[1] not in _HOSTS:
        return ""
    path = match[2].removesuffix("/").removesuffix(".git")
    return f"https://{match[1]}/{quote(path)}/{_HOSTS[match[1]]}/main/"


def address(base: str, root: Path, file: Path) -> str | None:
    """Return where `file` can be edited, or None where that isn't known."""
    resolved = file.resolve()
    if not base or not resolved.is_relative_to(root.resolve()):
        return None
    return base + quote(resolved.relative_to(root.resolve()).as_posix())
