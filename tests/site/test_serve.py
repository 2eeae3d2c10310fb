"""`mkdocs serve` shows a saved change to a page, and finds it too.

How long that takes on the whole workbook stands in docs/reference/site.md (`make benchmark`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.notelab.scratch import Scratch
from tests.site.live_server import copy_workbook, get, seconds_to_page, serve_live
from tests.site.scratch_site import make_site

SENTENCE = "A sentence that was saved just now."


def search_index(address: str, words: str) -> list[str]:
    """Return the pages whose entries in the site's search index contain these words."""
    entries = json.loads(get(f"{address}search/search_index.json"))["docs"]
    return [entry["location"].partition("#")[0] for entry in entries if words in entry["text"]]


def check_saved_change(book: Path, source: str) -> None:
    with serve_live(book) as address:
        before = search_index(address, "")
        seconds_to_page(book, address, SENTENCE, source)
        assert search_index(address, SENTENCE) == [f"{source.removeprefix('docs/')}/"]
        assert search_index(address, "") == before  # the pages that didn't change are still found


def test_a_saved_change_is_on_the_page_and_is_found(tmp_path: Path) -> None:
    check_saved_change(make_site(Scratch(tmp_path)), "experiments/01-scratch/note")


@pytest.mark.ci
def test_so_it_is_in_the_whole_workbook(tmp_path: Path) -> None:
    check_saved_change(copy_workbook(tmp_path), "docs/theory/01-collectives")
