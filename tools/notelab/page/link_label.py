"""Compares a link's label with its target: do both name the same place?"""

import re

from notelab.page.citation import Citation
from notelab.page.citation_syntax import LINE_WORD, parse_range
from notelab.page.note import FileLink

NOT_IN_CODE = "must be in one code span, between backticks"
_LOOSE_CITATION = re.compile(rf"(?P<path>.*?)(?:[:#]|,? )(?P<lines>(?:{LINE_WORD} |L)?\d.*)")


def is_same_place(label: Citation, target: Citation) -> bool:
    """Return whether a label that cites, in code font or not, names the target's place."""
    if label.problem == NOT_IN_CODE:
        match = _LOOSE_CITATION.fullmatch(label.text)
        if match is None:
            return False
        return same_path(match["path"], target) and same_lines(match["lines"], target)
    if label.repository:
        return label.text == target.text
    if not same_path(label.path, target):
        return False
    return bool(label.symbol) or _is_range_of((label.first, label.last), target)


def same_path(path: str, target: Citation | FileLink) -> bool:
    """Return whether a label's path is the target's path or the end of it."""
    candidates = {path, path.partition(":")[2] or path}  # a source's name may precede the colon
    return any(f"/{target.path}".endswith(f"/{candidate}") for candidate in candidates)


def same_lines(text: str, target: Citation) -> bool:
    """Return whether the lines in a label are the target's."""
    first, last, _ = parse_range(text)
    return _is_range_of((first, last), target)


def _is_range_of(lines: tuple[int, int], target: Citation) -> bool:
    """Return whether lines are the target's, or only its first line."""
    return lines in ((target.first, target.last), (target.first, target.first))
