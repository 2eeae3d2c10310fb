"""How a citation is spelled: what a reader would take for one, and what it says."""

import re

from notelab.page.citation import LAST_LINE_EVER, Citation, Span, number, path_problem

# Broad on purpose: whatever a reader would take for a citation must be judged as one, well-formed
# or not, so a slip of the pen is a finding and never plain text that nobody checks.
_LOOKS_LIKE = re.compile(
    r"^(?P<head>\S*[^\s:]):L?(?P<first>\d+)(?:\s*[-\u2013\u2014]\s*L?(?P<last>\d+))?$"
)
# Other ways to write one that a reader would follow, and that this grammar doesn't know.
_LINES = r"(?:[Ll]ines?|[Ll][ií]neas?|ll?\.|L)"
_LOOSE = re.compile(
    r"(?<![\w./~\\-])[\w./~\\-]*+(?<=\w)\s?"
    rf"(?:[:#]{{1,2}}\s?(?:[Ll]|{_LINES} )|[\s,(]+{_LINES} ?)\d"
)
_FILE_ENDING = re.compile(
    r"\.(?:pyi?|pyx|cpp|cxx|cc?|cuh?|hp?p?|hh|rs|go|[jt]sx?|java|jl|md|rst|toml|sh|txt|ya?ml|json"
    r"|cfg|ini|cmake|ipynb)$"
)
_PATH_IN_CODE = re.compile(_FILE_ENDING.pattern + r"|/\w")
_IN_PLAIN_TEXT = re.compile(
    rf"(?<![\w./:#@-])(?P<path>(?=\w*[./\[])[\w./\[\]-]++)"
    rf"(?P<lines>:L\d+|[:#]L?\d+|[\s,]*\(?(?:at |en la |en las )?{_LINES} ?\d+)"
    r"(?:\s?[-\u2013\u2014]\s?L?\d+)?"
)
# What makes a citation of a code span that is a path: the lines right after it, or before.
_LINES_AFTER = re.compile(
    rf"[:#]L?\d+|[\s,]*\(?(?:at |on |in |en la |en las )?{_LINES} ?\d+", re.IGNORECASE
)
_LINES_BEFORE = re.compile(
    rf"\b{_LINES} \d+(?:\s?(?:[-\u2013\u2014]|to|and|a|y)\s?\d+)?"
    r"\s(?:of|in|de|en|del)(?: file| archivo)?\s\Z"
)
_ADDRESS = re.compile(r"^[\w.-]*\.(?:\d+|com|org|net|io|dev|local)$")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_STRICT_LINES = re.compile(r":L[1-9]\d*(?:-L[1-9]\d*)?$")
_SOURCE = re.compile(r"^(?P<source>[A-Za-z][A-Za-z0-9_-]*):(?P<path>.+)$")
_PATH_HINT = re.compile(r"[/.]")


def looks_like_citation(code: str) -> bool:
    """Tell whether a code span is meant as a citation (`layers.py:12-15` is, `x[1:2]` is not)."""
    code = _INVISIBLE.sub("", code).strip(" ().,;'\"")
    found = _LOOKS_LIKE.match(code)
    if not found:
        loose = _LOOSE.search(code[:1000])
        return bool(loose and _PATH_IN_CODE.search(re.split(r"[\s:#,(]", loose[0])[0]))
    head = found["head"]
    if ":L" in code[len(head) :]:
        return True
    if _ADDRESS.match(head) or "://" in head:
        return False
    is_code = re.search(r"[\[\](){}=,'\"]", head) and not _FILE_ENDING.search(head)
    return bool(_PATH_HINT.search(head)) and not is_code


def in_plain_text(prose: str) -> list[tuple[str, int]]:
    """Return what stands in plain text and reads as a citation, each with its offset."""
    return [
        (found[0], found.start())
        for found in _IN_PLAIN_TEXT.finditer(prose)
        if found["lines"].startswith(":L") or _FILE_ENDING.search(found["path"])
    ]


def split_in_two(before: str, code: str, after: str) -> str:
    """Return the citation that a code span makes with the text around it, or ''.

    >>> split_in_two("see ", "a/b.py", ":L15, where")
    'a/b.py:L15'
    """
    if not _FILE_ENDING.search(code) or re.search(r"\s", code):
        return ""
    if lines := _LINES_AFTER.match(after):
        return f"{code}{lines[0]}"
    lines = _LINES_BEFORE.search(before[-80:])
    return f"{lines[0]}{code}" if lines else ""


def parse(code: str, span: Span) -> Citation:
    """Read a code span for which `looks_like_citation` holds; never raises."""
    found = _LOOKS_LIKE.match(code)
    if not found:
        return Citation(code, "", code, 0, 0, "is not `path:L<first>-L<last>`", span)
    head = found["head"]
    first, last = (number(found[group]) for group in ("first", "last"))
    if found["last"] is None:
        last = first
    named = _SOURCE.match(head)
    source, path = (named["source"], named["path"]) if named else ("", head)
    problem = path_problem(path) or _line_problem(code, first, last)
    return Citation(code, source, path, first, last, problem, span)


def _line_problem(code: str, first: int, last: int) -> str:
    if max(first, last) > LAST_LINE_EVER:
        return "names a line that no source file has"
    if not _STRICT_LINES.search(code):
        return "must end in `:L<first>-L<last>` or `:L<line>`, lines counted from 1"
    return ""
