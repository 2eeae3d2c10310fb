"""The checker's definition of a line, and of the names on it: a note gives them in code font.

A line is text up to a line feed, as git and code hosts number lines. Nothing else ends a line. A
carriage return, a form feed and U+2028 are ordinary characters, although Python's tokenizer and
`str.splitlines` start a new line after some of them. Row numbers of other parsers are converted
here before a rule uses them.
"""

import keyword
import re
from typing import AnyStr

_ROW_END = re.compile(r"\r\n|\r|\n")
# A command-line option counts as the name of the variable that its value goes to.
_NAME = re.compile(r"(?<![\w-])--[^\W\d][\w-]*|[^\W\d]\w*")
# These names occur everywhere, so they can't anchor a citation.
_NO_ANCHOR = frozenset({*keyword.kwlist, "self", "cls"})


def split_lines(text: AnyStr) -> list[AnyStr]:
    """Return the lines of a text or of a file's bytes, each without its line feed.

    >>> split_lines("a\\rb\\nc\\x0c"), split_lines(b"")
    (['a\\rb', 'c\\x0c'], [])
    """
    feed = "\n" if isinstance(text, str) else b"\n"
    lines = text.split(feed)
    return lines if lines[-1] else lines[:-1]


def places_of_rows(text: str) -> list[tuple[int, int]]:
    """Return where each row of Python's tokenizer begins: its line, and its offset in UTF-8 bytes.

    Python also begins a row after a lone carriage return, so one line may hold several rows.

    >>> places_of_rows("a\\rb\\r\\nc")
    [(1, 0), (1, 2), (2, 0)]
    """
    places, line, offset, at = [(1, 0)], 1, 0, 0
    for end in _ROW_END.finditer(text):
        if end[0] == "\r":
            offset += len(text[at : end.end()].encode("utf-8", "surrogatepass"))
        else:
            line, offset = line + 1, 0
        at = end.end()
        places.append((line, offset))
    return places


def names_in(text: str) -> list[str]:
    """Return the names of a text, in order.

    >>> names_in("export MASTER_ADDR=x; run --tensor-model-parallel-size 2")
    ['export', 'MASTER_ADDR', 'x', 'run', 'tensor_model_parallel_size']
    """
    names: list[str] = _NAME.findall(text)
    if "--" not in text:
        return names
    return [name[2:].replace("-", "_") if name.startswith("--") else name for name in names]


def is_anchor(name: str) -> bool:
    """Tell whether a name is specific enough to anchor a citation."""
    return len(name) > 1 and name not in _NO_ANCHOR
