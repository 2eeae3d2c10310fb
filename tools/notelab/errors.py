"""The one error that ends a command, in a line with how to mend it; how text and paths are said."""

import os
from collections.abc import Iterable
from pathlib import Path


class NotelabError(Exception):
    """A fault of the tool's surroundings or its configuration, not a finding about a note.

    Args:
        message: what was expected and what was found, in one line.
        hint: what to do about it; may be empty.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep the message and the hint, each as one line."""
        super().__init__(" ".join(message.split()))
        self.hint = " ".join(hint.split())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the hint that names what is known and nearest to a name; '' where nothing is near."""
    from difflib import get_close_matches  # most commands have nothing to hint at

    near = get_close_matches(name, list(known), n=1, cutoff=0.4)
    return f"did you mean `{near[0]}`?" if near else ""


def plain(text: str) -> str:
    """Put a space for each control or invisible character of an untrusted text."""
    return text if text.isprintable() else "".join(ch if ch.isprintable() else " " for ch in text)


def escaped(json: str) -> str:
    r"""Escape, in JSON text, each control or invisible character that JSON itself lets stand.

    >>> escaped('{"a": "\u202eb"}')
    '{"a": "\\u202eb"}'
    """
    lines = json.split("\n")
    return "\n".join(line if line.isprintable() else _escaped(line) for line in lines)


def _escaped(line: str) -> str:
    pieces = []
    for ch in line:
        units = ch.encode("utf-16-be", "surrogatepass").hex()
        codes = [f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]
        pieces.append(ch if ch.isprintable() else "".join(codes))
    return "".join(pieces)


def shown(path: Path) -> str:
    """Return a path as findings name it: POSIX, relative to the working directory if it can be.

    Bytes of a name that are not UTF-8 are replaced, since no report could hold them.
    """
    here, place = os.getcwd(), str(path)  # noqa: PTH109 (Path is slow, and asked for each page)
    if os.sep == "/" and here != "/" and place.startswith(f"{here}/"):
        return _valid(place[len(here) + 1 :])
    try:
        return _valid(Path(os.path.relpath(path)).as_posix())
    except ValueError:  # another drive
        return _valid(path.as_posix())


def _valid(name: str) -> str:
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "replace")
