"""Descriptions of the controls of a figure, from which the page's script makes them."""

from collections.abc import Sequence
from typing import Any


def make_choice(name: str, label: str, options: Sequence[tuple[object, str]], at: object) -> Any:
    """Return a list to choose from: values with their labels."""
    return {"name": name, "label": label, "kind": "choice", "options": options, "at": at}


def make_slider(name: str, label: str, options: Sequence[tuple[object, str]], at: object) -> Any:
    """Return a slider over values with their labels."""
    return {"name": name, "label": label, "kind": "slider", "options": options, "at": at}


def make_number_field(
    name: str, label: str, at: float, *, least: float = 1, step: object = 1
) -> Any:
    """Return a field for a number of `least` or more; `step="any"` allows fractions."""
    return {
        "name": name, "label": label, "kind": "number", "at": at, "least": least, "step": step,
    }  # fmt: skip


def make_checkbox(name: str, label: str, at: bool) -> Any:
    """Return a checkbox."""
    return {"name": name, "label": label, "kind": "tick", "at": at}
