"""`mkdocs serve` shows a saved change to a note within five seconds, on the whole workbook."""

from __future__ import annotations

import json
from pathlib import Path

from tests.site.live_server import NOTE, copied, get, live, seconds_to_page

LIMIT = 5.0  # seconds


def found(address: str, words: str) -> list[str]:
    """Where the site's search index has these words."""
    entries = json.loads(get(f"{address}search/search_index.json"))["docs"]
    return [entry["location"].partition("#")[0] for entry in entries if words in entry["text"]]


def test_a_saved_change_is_on_the_page_in_five_seconds_and_is_found(tmp_path: Path) -> None:
    book = copied(tmp_path)
    taken: list[float] = []
    with live(book) as address:
        before = found(address, "")
        # What else the machine does only makes a reload longer: the shortest of a few tells.
        while len(taken) < 4 and min(taken, default=LIMIT) >= LIMIT:
            sentence = f"Sentence {len(taken)}, saved just now."
            taken.append(seconds_to_page(book, address, sentence))
        assert found(address, sentence) == [f"{NOTE}/"]
        assert found(address, "") == before  # the pages that didn't change are still found
    assert min(taken) < LIMIT, taken
