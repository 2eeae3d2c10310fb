"""What a reader may turn, told to the script: without a script there is nothing to turn."""

from collections.abc import Sequence
from typing import Any


def choice(name: str, label: str, options: Sequence[tuple[object, str]], at: object) -> Any:
    """Return a list to choose from: values with their words."""
    return {"name": name, "label": label, "kind": "choice", "options": options, "at": at}


def slider(name: str, label: str, options: Sequence[tuple[object, str]], at: object) -> Any:
    """Return a slider over values with their words."""
    return {"name": name, "label": label, "kind": "slider", "options": options, "at": at}


def number(name: str, label: str, at: float, *, least: float = 1, step: object = 1) -> Any:
    """Return a field for a number of `least` or more; `step` "any" lets fractions in."""
    return {
        "name": name, "label": label, "kind": "number", "at": at, "least": least, "step": step,
    }  # fmt: skip


def tick(name: str, label: str, at: bool) -> Any:
    """Return a box to tick."""
    return {"name": name, "label": label, "kind": "tick", "at": at}
