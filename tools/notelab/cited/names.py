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
    return [
        found[2:].replace("-", "_") if found.startswith("--") else found
        for found in _NAME.findall(text)
    ]


def is_anchor(name: str) -> bool:
    """Tell whether a name is telling enough to anchor a citation."""
    return len(name) > 1 and name not in _NO_ANCHOR
