"""How a citation is spelled within one code span, and the words and forms of all citations."""

import re
from collections.abc import Iterator

from notelab.page.citation import LAST_LINE_EVER, Citation, Span, number, path_problem

DASH = "[-\u2013\u2014]"
LINE_WORD = r"(?:[Ll]ines?|[Ll][ií]neas?|ll?\.|L)"
# One line, or a first and a last one; a column after either is read over.
RANGE = rf"[Ll]?\d+(?:C\d+)?(?:\s?{DASH}\s?[Ll]?\d+(?:C\d+)?)?"
FILE_ENDING = re.compile(
    r"\.(?:pyi?|pyx|cpp|cxx|cc?|cuh?|hp?p?|hh|rs|go|[jt]sx?|java|jl|md|rst|toml|sh|txt|ya?ml|json"
    r"|cfg|ini|cmake|ipynb)$"
)
_NEXT = r"\s*(?:,|;|&|\+|and\b|y\b)\s*"
# Broad on purpose: whatever a reader would take for a citation is judged as one, well-formed or
# not. A slip of the pen is then a finding and never plain text that nobody checks.
_CITED = re.compile(
    r"(?P<head>.*?[^\s:#,(])(?P<mark>\s?[:#]{1,2}\s?|[\s,(]+(?=[Ll]))"
    rf"(?P<word>{LINE_WORD} )?(?P<ranges>{RANGE}(?:{_NEXT}{RANGE})*)\)?"
)
_SYMBOL = re.compile(
    r"(?P<head>\S+\.(?:pyi?|cpp|cxx|cc?|cuh?|hp?p?|hh|rs))#(?P<symbol>[^\W\d]\w*(?:(?:\.|::)\w+)*)"
)
_EACH_RANGE = re.compile(RANGE)
_DIGITS = re.compile(r"\d+")
_COLUMN = re.compile(r"C\d+")
_LONG_NUMBER = re.compile(r"\d{10,}")
_ADDRESS = re.compile(r"[\w.-]*\.(?:\d+|com|org|net|io|dev|local)")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_IN_CODE = re.compile(r"[\[\](){}=,'\"]")
_SOURCE = re.compile(r"(?P<source>[A-Za-z][A-Za-z0-9_-]*):(?P<path>.+)")
_LONGEST = 1000
_STOPS = " .,;"
_AROUND = (
    ('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("[[", "]]"), ("(", ")"),
)  # fmt: skip
_FULL_RANGE = re.compile(r":L\d+-L\d+")


def looks_like_citation(code: str) -> bool:
    """Tell whether a code span is meant as a citation (`layers.py:12-15` is, `x[1:2]` is not)."""
    return _match(code) is not None


def parse(code: str, span: Span) -> Citation:
    """Read a code span for which `looks_like_citation` holds: its first citation; never raises."""
    return next(parse_all(code, span))


def parse_all(code: str, span: Span) -> Iterator[Citation]:
    """Yield what a code span cites: nothing, one place, or several ranges of one file."""
    found = _match(code)
    if found is None:
        return
    named = _SOURCE.fullmatch(found["head"])
    source, path = (named["source"], named["path"]) if named else ("", found["head"])
    problem = path_problem(path)
    if _INVISIBLE.search(code):
        problem = "holds a character that nobody sees"
    if found.re is _SYMBOL:
        yield Citation(code, source, path, 0, 0, problem, span, symbol=found["symbol"])
        return
    for at, each in enumerate(_EACH_RANGE.finditer(found["ranges"])):
        first, last, wrong = lines_of(each[0])
        text = each[0] if at else code if each.end() == len(found["ranges"]) else _first(code, each)
        yield Citation(text, source, path, first, last, problem or wrong, span)


def lines_of(range: str) -> tuple[int, int, str]:
    """Return the first and last line of a range as it is written, and what is wrong with it.

    >>> lines_of("L4-L6"), lines_of("15")
    ((4, 6, ''), (15, 15, ''))
    """
    digits = _DIGITS.findall(_COLUMN.sub("", range))
    first, last = number(digits[0]), number(digits[-1])
    if any(each.startswith("0") for each in digits):
        return first, last, "must count its lines from 1, without a zero before the number"
    if max(first, last) > LAST_LINE_EVER:
        return first, last, "names a line that no source file has"
    return first, last, ""


def possible_path(code: str) -> str:
    """Return the path that a code span may cite, although it reads as code; else ''.

    >>> possible_path("Makefile:4-6"), possible_path("a/b.py:L4"), possible_path("x[1:2]")
    ('Makefile', '', '')
    """
    found = _CITED.fullmatch(_bare(code[:_LONGEST]))
    if found is None or "://" in code or _is_meant(found, code):
        return ""
    return found["head"]


def _first(code: str, range: re.Match[str]) -> str:
    """Return the code up to the end of its first range."""
    return code[: code.find(range[0]) + len(range[0])]


def _match(code: str) -> re.Match[str] | None:
    code = _LONG_NUMBER.sub("9" * 9, _INVISIBLE.sub("", code[:_LONGEST] + code[_LONGEST:][-99:]))
    code = _bare(code)
    symbol = _SYMBOL.fullmatch(code)
    if symbol and "://" not in code and not re.fullmatch(r"L\d+", symbol["symbol"]):
        return symbol
    found = _CITED.fullmatch(code) if code[-1:].isdigit() or code[-1:] == ")" else None
    return found if found and _is_meant(found, code) else None


def _bare(code: str) -> str:
    """Return a code span without the quotes or brackets and the full stop around a citation.

    A quote or bracket on one side alone is a character of the path.
    """
    code = code.strip().rstrip(_STOPS)
    for opening, closing in _AROUND:
        if code.startswith(opening) and code.endswith(closing):
            code = code.removeprefix(opening).removesuffix(closing).rstrip(_STOPS)
    return code


def _is_meant(found: re.Match[str], code: str) -> bool:
    head, mark = found["head"], found["mark"].strip()
    if "://" in head:
        return False
    ending = FILE_ENDING.search(head) is not None
    named = ending or "/" in head or ("." in head and " " not in head)
    if found["word"] or found["ranges"].startswith(("L", "l")):
        if mark.startswith(":"):
            # Of code with a blank in it, `…:L4-L6` alone can be meant; `the norm:L2` is none.
            whole = found["mark"] + found["ranges"]
            return named or " " not in head or _FULL_RANGE.fullmatch(whole) is not None
        return named and (ending or "/" in head)
    if mark.startswith("#") or " " in head:
        return ending
    if _ADDRESS.fullmatch(head) or (_IN_CODE.search(head) and not ending):
        return False
    return mark.startswith(":") and named
