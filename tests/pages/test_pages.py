"""Every generated page is the one that `python -m pages NAME` would write now."""

import pytest

from pages import catalog

# Lab 00's page is compared with what its command prints by tests/docs/test_commands.py too.
SLOW = ("diagrams", "evening", "lab-00", "lab-00b", "lab-01", "lab-04", "lab-06")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.ci] * (name in SLOW)) for name in catalog.MODULES],
)
def test_a_page_is_what_its_command_writes(name: str) -> None:
    assert catalog.list_stale(name) == [], f"run `python -m pages {name}`"
