"""Makes edit links, and knows what to clone: addresses on the host that the workbook came from.

mkdocs's `repo_url` doesn't fit: Material asks the host's API for it, and mkdocs expects every page
below docs/, where notes aren't.
"""

import re
from configparser import ConfigParser, Error
from functools import cache
from pathlib import Path
from urllib.parse import quote

# The forms of git's addresses: https://HOST/PATH.git, ssh://git@HOST/PATH, git@HOST:PATH
_ADDRESS = re.compile(r"(?:https://(?:[^@/]+@)?|ssh://(?:[^@/]+@)?|[\w.-]+@)([\w.-]+)[/:](.+)")
_UNKNOWN_ADDRESS = re.compile(r"<!-- address -->.*?<!-- /address -->\s*", re.DOTALL)
_HOSTS = {"github.com": "edit", "gitlab.com": "-/edit", "codeberg.org": "_edit"}


def find_base(root: Path, configured: str) -> str:
    """Return the address to which a file's path is appended, or "" if none is known.

    Args:
        root: the repository's folder.
        configured: the address in the configuration; if it is "", the address is derived from the
            clone's `origin`.
    """
    return configured.rstrip("/") + "/" if configured else derive_base(read_origin(root))


def name_repository(markdown: str, root: Path, configured: str | None) -> str:
    """Return a page whose commands clone from the repository's address, if that is known.

    It is `repo_url` of mkdocs.yml, or else the clone's `origin` on a known host. What the page says
    between the marks `address`, for readers who must find it themselves, is left out then.
    """
    match = _ADDRESS.fullmatch(read_origin(root))
    origin = f"https://{match[1]}/{quote(match[2])}" if match and match[1] in _HOSTS else ""
    if address := configured or origin:
        markdown = _UNKNOWN_ADDRESS.sub("", markdown)
        return markdown.replace("git clone REPOSITORY", f"git clone {address}")
    return markdown


@cache  # each page asks; a build begins with `read_origin.cache_clear()`
def read_origin(root: Path) -> str:
    """Return the address of the clone's `origin`, or ""."""
    config = ConfigParser(strict=False, interpolation=None)
    try:
        config.read(root / ".git" / "config", "utf-8")
        return config.get('remote "origin"', "url", fallback="").strip()
    except (Error, UnicodeDecodeError):
        return ""


def derive_base(url: str) -> str:
    """Return the address to edit files of a git remote, or "" for an unknown host.

    >>> derive_base("git@github.com:someone/shardbook.git")
    'https://github.com/someone/shardbook/edit/main/'
    >>> derive_base("/srv/shardbook.git")
    ''
    """
    match = _ADDRESS.fullmatch(url)
    if not match or match[1] not in _HOSTS:
        return ""
    path = match[2].removesuffix("/").removesuffix(".git")
    return f"https://{match[1]}/{quote(path)}/{_HOSTS[match[1]]}/main/"
