"""Decoding a cited file: as UTF-8, or as the encoding that a Python file declares."""

import codecs
import io
import re
import tokenize

from notelab.errors import NotelabError

PYTHON = (".py", ".pyi")
# Only encodings that editors write are read. A declaration may also name other codecs (`punycode`,
# `unicode_escape`), and some of these take quadratic time or create line feeds.
_WRITTEN = re.compile(r"utf-8|ascii|iso8859|latin|cp\d|koi8|mac|gb|big5|euc|shift|johab|tis-|hp-")


class UndecodedError(NotelabError):
    """A file can't be decoded as its language would decode it; the message says why."""


def text_of(path: str, data: bytes) -> str:
    """Return a file's text with the line feeds of its bytes, and without a byte order mark.

    Raises:
        UndecodedError: a Python file isn't in the encoding that it declares, or that encoding is
            not supported.
    """
    if not path.endswith(PYTHON):
        return as_utf8(data)
    try:
        declared, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if not _WRITTEN.match(codecs.lookup(declared).name):
            raise UndecodedError(f"it declares the encoding {declared}, which is not read here")
        text = data.decode(declared)
    except (SyntaxError, LookupError) as fault:  # the encoding is unknown or is no text encoding
        raise UndecodedError(f"its encoding can't be read ({fault})") from None
    except UnicodeError as fault:
        raise UndecodedError(f"it is not in the encoding that it declares ({fault})") from None
    if text.count("\n") != data.count(b"\n"):
        raise UndecodedError(f"in the encoding that it declares, {declared}, its lines differ")
    return text


def as_utf8(data: bytes) -> str:
    """Decode bytes as UTF-8 without a byte order mark; invalid bytes are replaced."""
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
