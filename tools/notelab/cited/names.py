"""The names that a text holds: what a note says in code font and a cited line has, whole."""

import keyword
import re

# A command-line option is one name, and that of the variable which its value goes to.
_NAME = re.compile(r"(?<![\w-])--[^\W\d][\w-]*|[^\W\d]\w*")
# Names that stand everywhere anchor nothing.
_NO_ANCHOR = frozenset({*keyword.kwlist, "self", "cls"})


def names_in(text: str) -> list[str]:
    """Return the names of a text, in order.

    >>> names_in("export MASTER_ADDR=x; run --tensor-model-parallel-size 2")
    ['export', 'MASTER_ADDR', 'x', 'run', 'tensor_model_parallel_size']
    """
    found: list[str] = _NAME.findall(text)
    if "--" not in text:
        return found
    return [one[2:].replace("-", "_") if one.startswith("--") else one for one in found]


def is_anchor(name: str) -> bool:
    """Tell whether a name is telling enough to anchor a citation."""
    return len(name) > 1 and name not in _NO_ANCHOR
