"""The syntax of a citation in a code span and in a permalink, and the patterns that both share."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

from notelab.page.citation import MAX_LINE, Citation, Form, Span, parse_line_number, path_problem
from notelab.page.note import FileLink
from notelab.sources.git.url import is_commit, normalize_repository

DASH = "[-\u2013\u2014]"
LINE_WORD = r"(?:[Ll]ines?|[Ll][ií]neas?|ll?\.|L)"
# A line, or a first line and a last line; a column after either is ignored.
_LINE = r"[Ll]?\d+(?:C\d+|:\d+(?![\w:]))?"
RANGE = rf"{_LINE}(?:\s?{DASH}\s?{_LINE})?"
# Endings of files that have named symbols, and of others that may be cited.
_CODE_ENDINGS = r"pyi?|cpp|cxx|cc?|cuh?|hp?p?|hh|rs|go|[cm]?[jt]sx?|java"
ENDINGS = (
    rf"{_CODE_ENDINGS}|pyx|jl|kts?|rb|swift|cs|php|scala|m|mm|md|rst|toml|sh|bash|txt|ya?ml|json"
    r"|cfg|ini|cmake|ipynb|proto|lua|zig|dart|sql|html?|css|scss|vue|svelte|gradle|mk"
)
FILE_ENDING = re.compile(rf"\.(?:{ENDINGS})$")
_NEXT = r"\s*(?:,|;|&|\+|/|and\b|y\b)\s*"
# Broad on purpose: whatever a reader would take for a citation is checked as one, well-formed or
# not. A typing error is then a finding and never plain text that no rule checks.
_CITATION = re.compile(
    r"(?P<head>.*?[^\s:#,(])(?P<mark>\s?[:#]{1,2}\s?|[\s,(]+(?=[Ll]))"
    rf"(?P<word>{LINE_WORD} )?(?P<ranges>{RANGE}(?:{_NEXT}[:#]?{RANGE})*)\)?"
)
_SYMBOL = re.compile(
    rf"(?P<head>\S+\.(?:{_CODE_ENDINGS}))(?P<mark>#|::)(?P<symbol>[^\W\d]\w*(?:(?:\.|::)\w+)*)"
)
_ONE_RANGE = re.compile(RANGE)
RANGE_IN_TEXT = re.compile(rf"{RANGE}(?:\s?(?:to|a|{DASH})\s?L?\d+)?")
_DIGITS = re.compile(r"\d+")
_COLUMN = re.compile(r"(?<=\d)[C:]\d+")
_LONG_NUMBER = re.compile(r"\d{10,}")
_EXPLICIT = re.compile(rf"(?<![^\W\d])L\d|\b{LINE_WORD}\s")  # lines, not only numbers
WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_ADDRESS = re.compile(r"[\w.:-]*\.(?:\d+|com|org|net|io|dev|local)")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_CODE_PUNCTUATION = re.compile(r"[\[\](){}=,'\"]")
_SOURCE = re.compile(r"(?P<source>[A-Za-z][A-Za-z0-9_-]*):(?P<path>.+)")
_MAX_CHARACTERS = 1000
_STOPS = " .,;"
_ENCLOSING = (
    ('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("[[", "]]"), ("(", ")"),
)  # fmt: skip
_FULL_RANGE = re.compile(r":L\d+-L\d+")


def looks_like_citation(code: str) -> bool:
    """Return whether a code span is meant as a citation (`layers.py:12-15` is, `x[1:2]` is not)."""
    return _match(code) is not None


def parse(code: str, span: Span) -> Citation:
    """Return the first citation of a code span for which `looks_like_citation` holds."""
    return next(parse_all(code, span))


def parse_all(code: str, span: Span) -> Iterator[Citation]:
    """Yield the citations of a code span: none, one, or one for each range of lines.

    `Makefile:4-6` and `a.py::name` may be code as well; their form is `maybe`, and a source's tree
    decides.
    """
    match = _match(code, maybe=True)
    if match is None:
        return
    source, path = split_source(match["head"])
    problem = path_problem(path)
    if _INVISIBLE.search(code):
        problem = "contains a hidden character"
    if match.re is _SYMBOL:
        symbol = match["symbol"]
        form: Form = "symbol" if match["mark"] == "#" else "maybe"
        yield Citation(code, source, path, 0, 0, problem, span, symbol=symbol, form=form)
        return
    form = "code" if _is_citation(match, code) else "maybe"
    for index, line_range in enumerate(_ONE_RANGE.finditer(match["ranges"])):
        first, last, range_problem = parse_range(line_range[0])
        text = (
            line_range[0]
            if index
            else code
            if line_range.end() == len(match["ranges"])
            else _through_range(code, line_range)
        )
        why = problem or range_problem
        at = "range" if index and form == "code" else form
        yield Citation(text, source, path, first, last, why, span, form=at)


def is_only_a_word(citation: Citation, *, has_kin: bool | None) -> bool:
    """Tell whether a path that no source has isn't meant as one: `node.js:18`, `np.float32:4`.

    Args:
        citation: the citation.
        has_kin: whether a source has a file with this ending; None if no tree was read.
    """
    has_form = citation.form in ("code", "apart", "range") and not citation.repository
    if not has_form or has_kin or _EXPLICIT.search(citation.text):
        return False
    has_ending = FILE_ENDING.search(citation.path) is not None
    return not has_ending or (has_kin is False and "/" not in citation.path)


def parse_range(range: str) -> tuple[int, int, str]:
    """Return the first line and the last line of a written range, and what is wrong with it or ''.

    >>> parse_range("L4-L6"), parse_range("15")
    ((4, 6, ''), (15, 15, ''))
    """
    digits = _DIGITS.findall(_COLUMN.sub("", range))
    first, last = parse_line_number(digits[0]), parse_line_number(digits[-1])
    if any(number.startswith("0") for number in digits):
        return first, last, "must count its lines from 1 and have no leading zero"
    if max(first, last) > MAX_LINE:
        return first, last, "names a line that no source file has"
    return first, last, ""


def split_source(head: str) -> tuple[str, str]:
    """Return the source's name and the path of `source:path`; the name may be ''."""
    prefixed = _SOURCE.fullmatch(head)
    return (prefixed["source"], prefixed["path"]) if prefixed else ("", head)


def parse_ranges(lines: str) -> Iterator[tuple[str, int, int, str]]:
    """Yield each range of written lines, with its first line, its last line and its problem.

    >>> [text for text, *_ in parse_ranges("lines 4 to 6 and 9")]
    ['4 to 6', '9']
    """
    for match in RANGE_IN_TEXT.finditer(lines):
        yield match[0], *parse_range(match[0])


def _through_range(code: str, range: re.Match[str]) -> str:
    """Return the code up to the end of its first range."""
    return code[: code.find(range[0]) + len(range[0])]


def _match(code: str, *, maybe: bool = False) -> re.Match[str] | None:
    code = _LONG_NUMBER.sub(
        "9" * 9, _INVISIBLE.sub("", code[:_MAX_CHARACTERS] + code[_MAX_CHARACTERS:][-99:])
    )
    code = _strip_quotes(code)
    if WINDOWS_PATH.match(code) and not _EXPLICIT.search(code):
        return None
    symbol = _SYMBOL.fullmatch(code)
    if symbol and "://" not in code and not re.fullmatch(r"L\d+", symbol["symbol"]):
        return symbol if maybe or symbol["mark"] == "#" else None
    match = _CITATION.fullmatch(code) if code[-1:].isdigit() or code[-1:] == ")" else None
    if match is None or _is_citation(match, code):
        return match
    is_code = "://" in code or _CODE_PUNCTUATION.search(match["head"])
    return match if maybe and not is_code else None


def _strip_quotes(code: str) -> str:
    """Return a code span without the quotes or brackets and the full stop around it.

    A quote or bracket on one side only is a character of the path.
    """
    code = code.strip().rstrip(_STOPS)
    for opening, closing in _ENCLOSING:
        if code.startswith(opening) and code.endswith(closing):
            code = code.removeprefix(opening).removesuffix(closing).rstrip(_STOPS)
    return code


def _is_citation(match: re.Match[str], code: str) -> bool:
    head, mark = match["head"], match["mark"].strip()
    if "://" in head:
        return False
    has_ending = FILE_ENDING.search(head) is not None
    is_path = has_ending or "/" in head or ("." in head and " " not in head)
    if match["word"] or match["ranges"].startswith(("L", "l")):
        if mark.startswith(":"):
            # Code with a space is a citation only with `…:L4-L6`; `the norm:L2` is none.
            lines = match["mark"] + match["ranges"]
            return is_path or " " not in head or _FULL_RANGE.fullmatch(lines) is not None
        return is_path and (has_ending or "/" in head)
    if mark.startswith("#") or " " in head:
        return has_ending
    if _ADDRESS.fullmatch(head) or (_CODE_PUNCTUATION.search(head) and not has_ending):
        return False
    return mark.startswith(":") and is_path


# GitHub and GitLab (`blob`, `blame`, `tree`), Gitea and Forgejo (`src/commit`), Bitbucket (`src`).
_PERMALINK = re.compile(
    r"https?://(?P<host>[\w.-]+(?::\d+)?)/(?P<repository>[\w.~-]+(?:/[\w.~-]+){1,8}?)/(?:-/)?"
    r"(?:blob|blame|tree|src/commit|src/branch|src/tag|src)/(?P<commit>[^/\s#?<>]+)/"
    r"(?P<path>[^\s#?<>\"]+)(?:\?[^\s#]*)?"
    r"(?:#(?:L|lines-)(?P<first>\d+)(?:C\d+)?(?:[-:]L?(?P<last>\d+)(?:C\d+)?)?|#\S*)?"
)
_TAG = re.compile(r"[\w.+-]{1,100}")
_URL = re.compile(r"https?://[^\s<>\"`\ue000-\ue003]+")
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
        for match in _URL.finditer(text):
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
