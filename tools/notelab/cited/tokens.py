"""Hashes of runs of tokens, which detect source code pasted into a page.

A text becomes a sequence of tokens (names, numbers, single punctuation marks). Every `RUN`
consecutive tokens become one 64-bit hash. A page that shares a hash with a pinned file holds a
piece of that file, even if it was re-wrapped, indented or quoted.
"""

import re
from array import array
from collections.abc import Iterable
from hashlib import blake2b

RUN = 25
_TOKEN = re.compile(r"[^\W\d]\w*|\d+|[^\w\s]")
# Marks that Markdown, a diff or a comment puts before a pasted line.
_LINE_MARK = re.compile(
    r"^(?:[ \t]*(?:>|\.\.\.|[-+*](?=[ \t])|L?\d{1,6}(?:[:.)]|(?=[ \t])))[ \t]?)+|^[-+](?=\S)",
    re.MULTILINE,
)
# HTML tags that may wrap a pasted line, and invisible characters.
_WRAPPING = re.compile(r"</?(?:b|br|code|div|em|i|kbd|li|p|pre|samp|span|strong|td|tr)\b[^<>\n]*>")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
# A comment's `#`, a table's `|` and Markdown's `\\_` would hide a paste, so both sides drop them.
_IGNORED = frozenset("#`|\\")
_PRIME = (1 << 61) - 1
_BASE = 1_000_003
_TOP = pow(_BASE, RUN - 1, _PRIME)


def tokenize_source(text: str) -> list[str]:
    """Return the tokens of a source file, without the `#` of comments."""
    return [piece for piece in _TOKEN.findall(text) if piece not in _IGNORED]


def tokenize_page(text: str) -> list[tuple[str, int]]:
    """Return the tokens of a page with their 1-based rows, without Markdown's marks."""
    tokens = []
    if "&" in text:
        import html

        text = "\n".join(html.unescape(line).replace("\n", " ") for line in text.split("\n"))
    plain_text = _LINE_MARK.sub(" ", _WRAPPING.sub(" ", _INVISIBLE.sub("", text)))
    for row, line in enumerate(plain_text.split("\n"), start=1):
        tokens += [(piece, row) for piece in _TOKEN.findall(line) if piece not in _IGNORED]
    return tokens


def run_hashes(tokens: Iterable[str]) -> "array[int]":
    """Return the hash of every run of `RUN` consecutive tokens, in order."""
    token_values: dict[str, int] = {}
    values = []
    for token in tokens:
        value = token_values.get(token)
        if value is None:
            digest = blake2b(token.encode("utf-8", "surrogatepass"), digest_size=7).digest()
            value = token_values[token] = int.from_bytes(digest, "big")
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
