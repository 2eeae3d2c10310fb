"""Runs of tokens, to tell pasted source from prose.

A file becomes a sequence of tokens (names, numbers, single punctuation marks); every `RUN`
consecutive ones become one 64-bit hash. A page that shares a hash with a pinned file holds a piece
of it, however it was re-wrapped, indented or quoted.
"""

import re
from array import array
from collections.abc import Iterable
from hashlib import blake2b

RUN = 25
_TOKEN = re.compile(r"[^\W\d]\w*|\d+|[^\w\s]")
# What Markdown, a diff or a comment puts before a pasted line, and the pasted line doesn't have.
_LINE_MARK = re.compile(
    r"^(?:[ \t]*(?:>|\.\.\.|[-+*](?=[ \t])|L?\d{1,6}(?:[:.)]|(?=[ \t])))[ \t]?)+|^[-+](?=\S)",
    re.MULTILINE,
)
# HTML that a pasted line may be wrapped in, and characters that nobody sees.
_WRAPPING = re.compile(r"</?(?:b|br|code|div|em|i|kbd|li|p|pre|samp|span|strong|td|tr)\b[^<>\n]*>")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
# A comment's `#`, a table's `|` and Markdown's `\\_` would hide a paste, so neither side has them.
_NO_TOKEN = frozenset("#`|\\")
_PRIME = (1 << 61) - 1
_BASE = 1_000_003
_TOP = pow(_BASE, RUN - 1, _PRIME)


def of_source(text: str) -> list[str]:
    """Return a source file's tokens; a comment's `#` is none, so that a pasted comment is seen."""
    return [piece for piece in _TOKEN.findall(text) if piece not in _NO_TOKEN]


def of_page(text: str) -> list[tuple[str, int]]:
    """Return a page's tokens, each with its 1-based row, without Markdown's own line marks."""
    found = []
    if "&" in text:
        import html

        text = "\n".join(html.unescape(line).replace("\n", " ") for line in text.split("\n"))
    plain = _LINE_MARK.sub(" ", _WRAPPING.sub(" ", _INVISIBLE.sub("", text)))
    for row, line in enumerate(plain.split("\n"), start=1):
        found += [(piece, row) for piece in _TOKEN.findall(line) if piece not in _NO_TOKEN]
    return found


def run_hashes(tokens: Iterable[str]) -> "array[int]":
    """Return the hash of every run of `RUN` consecutive tokens, in order (none for fewer)."""
    known: dict[str, int] = {}
    values = []
    for token in tokens:
        value = known.get(token)
        if value is None:
            digest = blake2b(token.encode("utf-8", "surrogatepass"), digest_size=7).digest()
            value = known[token] = int.from_bytes(digest, "big")
        values.append(value)
    hashes = array("Q")
    rolling = 0
    for index, value in enumerate(values):
        if index >= RUN:
            rolling = (rolling - values[index - RUN] * _TOP) % _PRIME
        rolling = (rolling * _BASE + value) % _PRIME
        if index >= RUN - 1:
            hashes.append(rolling)
    return hashes
