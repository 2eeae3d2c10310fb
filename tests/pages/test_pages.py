"""Every generated page is the one that `python -m pages NAME` would write now."""

import pytest

from pages import catalog


@pytest.mark.parametrize("name", catalog.MODULES)
def test_a_page_is_what_its_command_writes(name: str) -> None:
    assert catalog.list_stale(name) == [], f"run `python -m pages {name}`"
