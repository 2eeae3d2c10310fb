"""The error that ends a command, with its hint; how paths and untrusted text are printed."""

import os
from collections.abc import Iterable
from pathlib import Path


class NotelabError(Exception):
    """A fault of the configuration or of the machine, not a finding about a note.

    Args:
        message: one line that says what was expected and what was found.
        hint: one line that says what to do about it; it may be empty.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Store the message and the hint, each on one line."""
        super().__init__(" ".join(message.split()))
        self.hint = " ".join(hint.split())


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return a hint that names the candidate most similar to `name`, or '' if none is similar."""
    from difflib import get_close_matches  # imported late: most commands give no hint

    matches = get_close_matches(name, list(candidates), n=1, cutoff=0.4)
    return f"did you mean `{matches[0]}`?" if matches else ""


def sanitize(text: str) -> str:
    """Replace each control or invisible character of an untrusted text by a space."""
    return text if text.isprintable() else "".join(ch if ch.isprintable() else " " for ch in text)


def escape_json(json: str) -> str:
    r"""Escape, in JSON text, each control or invisible character that JSON itself lets stand.

    >>> escape_json('{"a": "\u202eb"}')
    '{"a": "\\u202eb"}'
    """
    lines = json.split("\n")
    return "\n".join(line if line.isprintable() else _escape_line(line) for line in lines)


def _escape_line(line: str) -> str:
    pieces = []
    for ch in line:
        units = ch.encode("utf-16-be", "surrogatepass").hex()
        codes = [f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]
        pieces.append(ch if ch.isprintable() else "".join(codes))
    return "".join(pieces)


def display_path(path: Path) -> str:
    """Return a path as messages show it: POSIX, relative to the working directory if possible.

    Bytes of a name that are not UTF-8 are replaced, since no report could hold them.
    """
    name, here = str(path), os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118 (for each page)
    if name.startswith(here) and ".." not in name:  # `relpath` takes ten times as long
        return _replace_invalid(name[len(here) :].replace(os.sep, "/"))
    try:
        return _replace_invalid(Path(os.path.relpath(path)).as_posix())
    except ValueError:  # the path is on another drive
        return _replace_invalid(path.as_posix())


def _replace_invalid(name: str) -> str:
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "replace")
