"""Checks addresses of repositories before git sees them, and compares them."""

import re
from urllib.parse import urlsplit

from notelab.sources.answers import SourceError

_SCP = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]*@([A-Za-z0-9][A-Za-z0-9.-]*):[A-Za-z0-9_~./][^:]*$")
_REMOTE = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?P<path>[^/].*)\Z")
_UNSAFE = re.compile(r"[\x00-\x20\x7f]")
_HINT = "write https://HOST/PATH, ssh://HOST/PATH or git@HOST:PATH; a clone on disk is a --mirror"
_PORTS = {"https": 443, "ssh": 22}


def check_url(url: str) -> None:
    """Accept https, ssh, git@host:path and file addresses, and no others.

    Raises:
        SourceError: the address has another form, which might run something on this machine.
    """
    if not url or len(url) > 2048 or _UNSAFE.search(url) or url.startswith("-") or "::" in url:
        raise SourceError(f"{url[:80]!r} is no address of a repository", hint=_HINT)
    if _SCP.match(url):
        return
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise SourceError(f"{url[:80]!r} is no address of a repository", hint=_HINT) from None
    if parts.scheme == "file" and not host and parts.path.startswith("/"):
        return
    if parts.scheme not in _PORTS or not re.match(r"^[A-Za-z0-9\[][A-Za-z0-9.:\]-]*$", host):
        raise SourceError(f"{redact(url)!r} is no https, ssh or git@ address", hint=_HINT)
    if (parts.username or "").startswith("-"):
        raise SourceError(f"{redact(url)!r} has a user name that begins with '-'", hint=_HINT)


def endpoint(url: str) -> tuple[str, int] | None:
    """Return the host and port of `url`, or None for a path on disk."""
    scp = _SCP.match(url)
    if scp:
        return scp[1], 22
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    return parts.hostname, parts.port or _PORTS[parts.scheme]


def redact(url: str) -> str:
    """Return `url` without password or token, shortened to fit in a line."""
    return re.sub(r"//[^/@]*@", "//", url)[:120]


def host_of(url: str) -> str:
    """Return how reasons name a remote: by its host, or by its path on disk."""
    place = endpoint(url)
    return place[0] if place else redact(url)


def normalize_repository(url: str) -> str:
    """Return a form that is the same for all addresses of one repository.

    >>> normalize_repository("git@github.com:NVIDIA/Megatron-LM.git")
    'github.com/nvidia/megatron-lm'
    >>> normalize_repository("https://github.com/NVIDIA/Megatron-LM/")
    'github.com/nvidia/megatron-lm'
    """
    scp = None if "://" in url else _REMOTE.match(url)
    host, path = (scp["host"], scp["path"]) if scp else _split_url(url)
    return f"{host}/{path.strip('/').removesuffix('.git')}".lower()


def _split_url(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.path
    except ValueError:
        return "", url


def is_commit(ref: str) -> bool:
    """Return whether a permalink's reference is a commit or a commit prefix; else it is a tag."""
    return re.fullmatch(r"[0-9a-f]{7,40}", ref) is not None
