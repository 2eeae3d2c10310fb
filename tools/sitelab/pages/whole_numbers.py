"""A number stays on one line, with its unit; an interval's first end with the dash behind it."""

import re

# What is copied letter by letter, drawn or run; else a run of text.
_PARTS = re.compile(r"<(pre|code|script|style|svg|math)\b.*?</\1>|<[^>]*>|[^<]+", re.DOTALL)
_THOUSANDS = r"(?<=\d) (?=\d{3}(?!\d))"  # as Spanish pages write them
_UNIT = r"(?<=\d) (?=(?:%|[nµm]?s|[kKMGT]i?B(?:/s)?|G|B|px)(?![\w-]))"
_DASH = r"(?<=[\d×%sB]) (?=– \d)"
_TORN = re.compile("|".join((_THOUSANDS, _UNIT, _DASH)))


def kept(html: str) -> str:
    """Return the page's HTML with spaces that don't break where a number would be torn."""
    return _PARTS.sub(_joined, html)


def _joined(part: re.Match[str]) -> str:
    return part[0] if part[0].startswith("<") else _TORN.sub("\N{NO-BREAK SPACE}", part[0])
