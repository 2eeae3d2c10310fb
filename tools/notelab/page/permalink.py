"""What links name: the file and lines of an address on a code host, and those of a label."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

from notelab.page.citation import MAX_LINE, Citation, Span, parse_line_number, path_problem
from notelab.page.citation_syntax import ENDINGS, parse_range
from notelab.page.note import FileLink
from notelab.sources.git.url import is_commit, normalize_repository

# GitHub and GitLab (`blob`, `blame`, `tree`), Gitea and Forgejo (`src/commit`), Bitbucket (`src`).
_PERMALINK = re.compile(
    r"https?://(?P<host>[\w.-]+(?::\d+)?)/(?P<repository>[\w.~-]+(?:/[\w.~-]+){1,8}?)/(?:-/)?"
    r"(?:blob|blame|tree|src/commit|src/branch|src/tag|src)/(?P<commit>[^/\s#?<>]+)/"
    r"(?P<path>[^\s#?<>\"]+)(?:\?[^\s#]*)?"
    r"(?:#(?:L|lines-)(?P<first>\d+)(?:C\d+)?(?:[-:]L?(?P<last>\d+)(?:C\d+)?)?|#\S*)?"
)
_TAG = re.compile(r"[\w.+-]{1,100}")
_ADDRESS = re.compile(r"https?://[^\s<>\"`\ue000-\ue003]+")
# Lines in an address of another form: a fragment (`#L9`, `#n9`, `#cl-9`, `#a.py-9`, `#9-12`) or a
# part of the query (`?L9`, `&line=9`, `;l=9`), with the file of a programming language before it.
_SOURCE_FILE = re.compile(
    rf"[/=]([^/=?&#]+\.(?:{ENDINGS.replace('|html?|css', '|css')}))(?:\.html?)?(?=[#?&;]|$)"
)
_LINE_REFERENCE = re.compile(
    r"#(?:[Ll]|n|ln|lines?[-=]|cl-|LC|[\w.]*\.\w+-)?\d|[?&;#](?:L\d|(?:l|ln|line(?:s|start)?)=\d)",
    re.I,
)
_TRAILING_PUNCTUATION = ".,;:!?'*_"


def find_addresses(text: str) -> Iterator[tuple[str, int]]:
    """Yield each address that `read` can read, with its offset in the text."""
    if "://" in text:
        for match in _ADDRESS.finditer(text):
            address = _strip_punctuation(match[0])
            if _cites_source(address):
                yield address, match.start()


def read(address: str, span: Span) -> Citation | FileLink:
    """Return the cited lines, or the linked file, of an address from `find_addresses`."""
    match = _PERMALINK.match(address)
    if match is None or (not match["first"] and _has_lines(address)):
        reason = (
            "is a link to lines in a form that the checker doesn't read; "
            "cite `path:L<first>-L<last>`"
        )
        return Citation(address, "", address, 0, 0, reason, span)
    path, commit = unquote(match["path"]), match["commit"]
    repository = normalize_repository(f"https://{match['host']}/{match['repository']}")
    if not match["first"]:
        return FileLink(address, repository, commit, path.rstrip("/"), span)
    first = parse_line_number(match["first"])
    last = parse_line_number(match["last"]) if match["last"] else first
    problem = path_problem(path)
    if not first >= 1 or last > MAX_LINE:
        problem = "names lines that no source file has"
    elif not _TAG.fullmatch(commit):
        problem = f"is a link to `{commit[:40]}`, which is no commit and no tag"
    return Citation(
        address, "", path, first, last, problem, span, repository, commit, form="address"
    )


def _cites_source(address: str) -> bool:
    match = _PERMALINK.match(address)
    is_read = bool(match and (match["first"] or is_commit(match["commit"])))
    return is_read or _has_lines(address)


def _has_lines(address: str) -> bool:
    """Return whether an address of any form names lines of a source file."""
    return bool(_LINE_REFERENCE.search(address) and _SOURCE_FILE.search(address))


def _strip_punctuation(address: str) -> str:
    """Return an address in running text without the punctuation of the sentence after it."""
    while address and (
        address[-1] in _TRAILING_PUNCTUATION or _ends_with_unopened_bracket(address)
    ):
        address = address[:-1]
    return address


def _ends_with_unopened_bracket(address: str) -> bool:
    last = address[-1]
    opening = {")": "(", "]": "[", "}": "{"}.get(last)
    return opening is not None and address.count(last) > address.count(opening)


def is_same_place(label: Citation, target: Citation) -> bool:
    """Return whether a label that cites, in code font or not, names the target's place."""
    if label.repository:
        return label.text == target.text
    if not same_path(label.path, target):
        return False
    return bool(label.symbol) or _is_range_of((label.first, label.last), target)


def same_path(path: str, target: Citation | FileLink) -> bool:
    """Return whether a label's path is the target's path or the end of it."""
    candidates = {path, path.partition(":")[2] or path}  # a source's name may precede the colon
    # In plain text, a path with a blank is read from behind the blank.
    ends = tuple(f"{before}{path}" for path in candidates for before in "/ ")
    return f"/{target.path}".endswith(ends)


def same_lines(text: str, target: Citation) -> bool:
    """Return whether the lines in a label are the target's."""
    first, last, _ = parse_range(text)
    return _is_range_of((first, last), target)


def _is_range_of(lines: tuple[int, int], target: Citation) -> bool:
    """Return whether lines are the target's, or only its first line."""
    return lines in ((target.first, target.last), (target.first, target.first))
