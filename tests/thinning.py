"""Which cases of a parametrized test a laptop runs: each value of each parameter at least once.

`.ci/run` runs every combination: the others are marked `ci`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

Case = dict[tuple[str, ...], tuple[Any, ...]]


def cover(cases: Sequence[Case]) -> set[int]:
    """Return the indices of few cases that have every value of every parameter between them.

    The case with the most values that no chosen case has is chosen next, the first of several.

    Args:
        cases: what each parameter is in a case, in a form that can be compared and hashed.
    """
    missing = {pair for case in cases for pair in case.items()}
    chosen = set()
    while missing:
        best = max(range(len(cases)), key=lambda n: (len(missing & cases[n].items()), -n))
        chosen.add(best)
        missing -= cases[best].items()
    return chosen


def describe_case(item: pytest.Item) -> Case:
    """Return what each parameter is in a test's case; names of one `parametrize` are one parameter.

    Values are compared by identity: `parametrize` gives the same object to all combinations.
    """
    ids = {name: id(value) for name, value in item.callspec.params.items()}  # type: ignore[attr-defined]
    case: Case = {}
    for mark in item.iter_markers("parametrize"):
        names = mark.kwargs.get("argnames") or mark.args[0]
        names = names.replace(",", " ").split() if isinstance(names, str) else names
        case[tuple(names)] = tuple(ids.pop(name) for name in names)
    return case | {(name,): (value,) for name, value in ids.items()}  # of parametrized fixtures


def leave_combinations_to_ci(items: Sequence[pytest.Item]) -> None:
    """Mark as `ci` the combinations of two or more parameters that `cover` does not choose."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        marked = any(item.get_closest_marker(name) for name in ("ci", "benchmark"))
        if hasattr(item, "callspec") and not marked:
            tests[item.nodeid.partition("[")[0]].append(item)
    for same_test in tests.values():
        cases = [describe_case(item) for item in same_test]
        if len(cases[0]) > 1:
            for number in {*range(len(cases))} - cover(cases):
                same_test[number].add_marker("ci")
