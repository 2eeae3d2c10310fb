"""An address on a code host: what file and which lines it leads to, where its form is known."""

import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from notelab.page.citation import LAST_LINE_EVER, Citation, Span, number, path_problem
from notelab.page.note import FileLink

# GitHub and GitLab (`blob`, `blame`, `tree`), Gitea and Forgejo (`src/commit`), Bitbucket (`src`).
_PERMALINK = re.compile(
    r"https?://(?P<host>[\w.-]+(?::\d+)?)/(?P<repository>[\w.~-]+(?:/[\w.~-]+){1,8}?)/(?:-/)?"
    r"(?:blob|blame|tree|src/commit|src/branch|src/tag|src)/(?P<commit>[^/\s#?<>]+)/"
    r"(?P<path>[^\s#?<>\"]+)(?:\?[^\s#]*)?"
    r"(?:#(?:L|lines-)(?P<first>\d+)(?:C\d+)?(?:[-:]L?(?P<last>\d+)(?:C\d+)?)?|#\S*)?"
)
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_TAG = re.compile(r"[\w.+-]{1,100}")
_SCP = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?P<path>[^/].*)\Z")
_ADDRESS = re.compile(r"https?://[^\s<>\"`\ue000-\ue003]+")
# Lines in an address of another form: a fragment (`#L9`, `#n9`, `#cl-9`, `#a.py-9`, `#9-12`) or a
# part of the query (`?L9`, `&line=9`, `;l=9`), with the file of a programming language before it.
_FILE = re.compile(
    r"[/=]([^/=?&#]+\.(?:pyi?|pyx|cpp|cxx|cc?|cuh?|hp?p?|hh|rs|go|[jt]sx?|java|jl|kt|rb|swift|cs"
    r"|php|scala|m|mm|md|rst|toml|sh|txt|ya?ml|json|cfg|ini|cmake|ipynb))(?:\.html?)?(?=[#?&;]|$)"
)
_LINES = re.compile(
    r"#(?:[Ll]|n|ln|lines?[-=]|cl-|LC|[\w.]*\.\w+-)?\d|[?&;#](?:L\d|(?:l|ln|line(?:s|start)?)=\d)",
    re.I,
)
_AFTER = ".,;:!?'*_"


def found_in(text: str) -> Iterator[tuple[str, int]]:
    """Yield each address that `read` has something to say of, with its offset."""
    if "://" in text:
        for found in _ADDRESS.finditer(text):
            address = _without_stops(found[0])
            if _meant(address):
                yield address, found.start()


def read(address: str, span: Span) -> Citation | FileLink:
    """Read an address that `found_in` found: the lines, or the whole file, that it leads to."""
    found = _PERMALINK.match(address)
    if found is None or (not found["first"] and _has_lines(address)):
        said = "is a link to lines in a form that nothing here reads; cite `path:L<first>-L<last>`"
        return Citation(address, "", address, 0, 0, said, span)
    path, commit = unquote(found["path"]), found["commit"]
    repository = repository_of(f"https://{found['host']}/{found['repository']}")
    if not found["first"]:
        return FileLink(address, repository, commit, path.rstrip("/"), span)
    first = number(found["first"])
    last = number(found["last"]) if found["last"] else first
    problem = path_problem(path)
    if not first >= 1 or last > LAST_LINE_EVER:
        problem = "names lines that no source file has"
    elif not _TAG.fullmatch(commit):
        problem = f"is a link to `{commit[:40]}`, which is no commit and no tag"
    return Citation(address, "", path, first, last, problem, span, repository, commit)


def is_commit(ref: str) -> bool:
    """Tell whether a permalink's commit is one, or the first digits of one; else it is a tag."""
    return _COMMIT.fullmatch(ref) is not None


def _meant(address: str) -> bool:
    found = _PERMALINK.match(address)
    if found and (found["first"] or is_commit(found["commit"])):
        return True
    return _has_lines(address)


def _has_lines(address: str) -> bool:
    """Tell whether an address, of whatever form, leads to lines of a program's file."""
    return bool(_LINES.search(address) and _FILE.search(address))


def _without_stops(address: str) -> str:
    """Return an address in running text without the sentence's own marks after it."""
    while address and (address[-1] in _AFTER or _closes_more(address)):
        address = address[:-1]
    return address


def _closes_more(address: str) -> bool:
    last = address[-1]
    opening = {")": "(", "]": "[", "}": "{"}.get(last)
    return opening is not None and address.count(last) > address.count(opening)


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
