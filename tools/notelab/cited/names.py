"""Finds names in text: a note gives them in code font, and a cited line must hold one whole."""

import keyword
import re

# A command-line option counts as the name of the variable that its value goes to.
_NAME = re.compile(r"(?<![\w-])--[^\W\d][\w-]*|[^\W\d]\w*")
# These names occur everywhere, so they can't anchor a citation.
_NO_ANCHOR = frozenset({*keyword.kwlist, "self", "cls"})


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
