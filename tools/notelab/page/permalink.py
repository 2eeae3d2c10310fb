"""A permalink of a code host: an address that carries repository, commit, path and lines."""

import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from notelab.page.citation import Citation, Span, number, path_problem

# GitHub and GitLab (`blob`, `blame`), Gitea and Forgejo (`src/commit`), Bitbucket (`src`).
_PERMALINK = re.compile(
    r"https?://(?P<host>[\w.-]+(?::\d+)?)/(?P<repository>[\w.~-]+(?:/[\w.~-]+){1,8}?)/(?:-/)?"
    r"(?:blob|blame|src/commit|src/branch|src/tag|src)/(?P<commit>[^/\s#?<>()]+)/"
    r"(?P<path>[^\s#?<>\"]+)(?:\?[^\s#]*)?"
    r"#(?:L|lines-)(?P<first>\d+)(?:C\d+)?(?:[-:]L?(?P<last>\d+)(?:C\d+)?)?"
)
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_SCP = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?P<path>[^/].*)\Z")


def found_in(text: str) -> Iterator[tuple[str, int]]:
    """Yield each address of lines on a code host, with its offset."""
    if "#L" in text or "#lines-" in text:
        for found in _PERMALINK.finditer(text):
            yield found[0], found.start()


def read(address: str, span: Span) -> Citation:
    """Read an address that `found_in` found."""
    found = _PERMALINK.match(address)
    assert found
    path, commit = unquote(found["path"]), found["commit"]
    first = number(found["first"])
    last = number(found["last"]) if found["last"] else first
    problem = path_problem(path)
    if not _COMMIT.fullmatch(commit):
        problem = f"is a link to `{commit[:40]}`, which moves; link to the commit"
    elif not first >= 1 or last > 10_000_000:
        problem = "names lines that no source file has"
    repository = repository_of(f"https://{found['host']}/{found['repository']}")
    return Citation(found[0], "", path, first, last, problem, span, repository, commit)


def repository_of(url: str) -> str:
    """Return what two addresses of one repository have in common.

    >>> repository_of("git@github.com:NVIDIA/Megatron-LM.git")
    'github.com/nvidia/megatron-lm'
    >>> repository_of("https://github.com/NVIDIA/Megatron-LM/")
    'github.com/nvidia/megatron-lm'
    """
    scp = None if "://" in url else _SCP.match(url)
    host, path = (scp["host"], scp["path"]) if scp else _parts(url)
    return f"{host}/{path.strip('/').removesuffix('.git')}".lower()


def _parts(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.path
    except ValueError:
        return "", url
