"""`mkdocs serve` shows a saved change to a page, and finds it too.

How long that takes on the whole workbook stands in docs/reference/site.md (`make benchmark`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.notelab.scratch import Scratch
from tests.site.live_server import copied, get, live, seconds_to_page
from tests.site.scratch_site import furnish

SENTENCE = "A sentence that was saved just now."


def found(address: str, words: str) -> list[str]:
    """Where the site's search index has these words."""
    entries = json.loads(get(f"{address}search/search_index.json"))["docs"]
    return [entry["location"].partition("#")[0] for entry in entries if words in entry["text"]]


def a_saved_change_is_shown_and_found(book: Path, source: str) -> None:
    with live(book) as address:
        before = found(address, "")
        seconds_to_page(book, address, SENTENCE, source)
        assert found(address, SENTENCE) == [f"{source.removeprefix('docs/')}/"]
        assert found(address, "") == before  # the pages that didn't change are still found


def test_a_saved_change_is_on_the_page_and_is_found(tmp_path: Path) -> None:
    a_saved_change_is_shown_and_found(furnish(Scratch(tmp_path)), "experiments/01-scratch/note")


@pytest.mark.ci
def test_so_it_is_in_the_whole_workbook(tmp_path: Path) -> None:
    a_saved_change_is_shown_and_found(copied(tmp_path), "docs/theory/01-collectives")
