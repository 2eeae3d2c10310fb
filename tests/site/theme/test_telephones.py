"""Every test of a narrow page emulates a telephone: a narrow window of a desk hides its faults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.site.reader import TELEPHONE, OpenReader, Reader

SITE_TESTS = Path(__file__).parents[1]


def test_only_the_reader_makes_windows_and_changes_their_size() -> None:
    setters = re.compile(r"\.(set_viewport_size|new_context|new_page)\(")
    files = [
        file.name for file in SITE_TESTS.rglob("*.py") if setters.search(file.read_text("utf-8"))
    ]
    assert files == ["reader.py"]


def test_a_narrow_window_is_a_telephone_whoever_opens_it(browser: Any, served: str) -> None:
    for width in (TELEPHONE, TELEPHONE + 1):
        reader = Reader(browser, served, viewport={"width": width, "height": 844})
        touched = reader.read("").evaluate("navigator.maxTouchPoints > 0")
        assert touched is (width == TELEPHONE)
        reader.close()


def test_a_desk_can_not_become_as_narrow_as_a_telephone(open_reader: OpenReader) -> None:
    desk = open_reader(viewport={"width": 1440, "height": 900})
    with pytest.raises(AssertionError, match="is_mobile"):
        desk.resize(TELEPHONE, 844)
