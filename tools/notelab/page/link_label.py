"""A link's label and its target: do they say the same place?"""

import re

from notelab.page.citation import Citation
from notelab.page.note import FileLink
from notelab.page.spelling import LINE_WORD, lines_of

NOT_IN_CODE = "must stand in one code span, between backticks"
_LOOSE = re.compile(rf"(?P<path>.*?)(?:[:#]|,? )(?P<lines>(?:{LINE_WORD} |L)?\d.*)")


def is_same(label: Citation, target: Citation) -> bool:
    """Tell whether what a label cites, in code font or out of it, is the target's place."""
    if label.problem == NOT_IN_CODE:
        found = _LOOSE.fullmatch(label.text)
        if found is None:
            return False
        return same_path(found["path"], target) and same_lines(found["lines"], target)
    if label.repository:
        return label.text == target.text
    if not same_path(label.path, target):
        return False
    return bool(label.symbol) or _are((label.first, label.last), target)


def same_path(path: str, target: Citation | FileLink) -> bool:
    """Tell whether a label's path is the target's, or the end of it."""
    spelled = {path, path.partition(":")[2] or path}  # what is before a colon may be a source
    return any(f"/{target.path}".endswith(f"/{each}") for each in spelled)


def same_lines(text: str, target: Citation) -> bool:
    """Tell whether the lines that a label says are the target's."""
    first, last, _ = lines_of(text)
    return _are((first, last), target)


def _are(lines: tuple[int, int], target: Citation) -> bool:
    """Tell whether lines are the target's, or only its first one."""
    return lines in ((target.first, target.last), (target.first, target.first))
