"""Makes edit links: the address of a page's file on the code host that the workbook came from.

mkdocs's `repo_url` doesn't fit: Material asks the host's API for it, and mkdocs expects every page
below docs/, where notes aren't.
"""

import re
from configparser import ConfigParser, Error
from pathlib import Path
from urllib.parse import quote

# The forms of git's addresses: https://HOST/PATH.git, ssh://git@HOST/PATH, git@HOST:PATH
_ADDRESS = re.compile(r"(?:https://(?:[^@/]+@)?|ssh://(?:[^@/]+@)?|[\w.-]+@)([\w.-]+)[/:](.+)")
_HOSTS = {"github.com": "edit", "gitlab.com": "-/edit", "codeberg.org": "_edit"}


def find_base(root: Path, configured: str) -> str:
    """Return the address to which a file's path is appended, or "" if none is known.

    Args:
        root: the repository's folder.
        configured: the address in the configuration; if it is "", the address is derived from the
            clone's `origin`.
    """
    if configured:
        return configured.rstrip("/") + "/"
    config = ConfigParser(strict=False, interpolation=None)
    try:
        config.read(root / ".git" / "config", "utf-8")
        url = config.get('remote "origin"', "url", fallback="")
    except (Error, UnicodeDecodeError):
        return ""
    return derive_base(url)


def derive_base(url: str) -> str:
    """Return the address to edit files of a git remote, or "" for an unknown host.

    >>> derive_base("git@github.com:someone/shardbook.git")
    'https://github.com/someone/shardbook/edit/main/'
    >>> derive_base("/srv/shardbook.git")
    ''
    """
    match = _ADDRESS.fullmatch(url.strip())
    if not match or match[1] not in _HOSTS:
        return ""
    path = match[2].removesuffix("/").removesuffix(".git")
    return f"https://{match[1]}/{quote(path)}/{_HOSTS[match[1]]}/main/"
