"""`mkdocs serve` shows a saved change to a page, on the whole workbook, and finds it too.

How long that takes stands in docs/reference/site.md (`make benchmark`).
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.site.live_server import copied, get, live, seconds_to_page


def found(address: str, words: str) -> list[str]:
    """Where the site's search index has these words."""
    entries = json.loads(get(f"{address}search/search_index.json"))["docs"]
    return [entry["location"].partition("#")[0] for entry in entries if words in entry["text"]]


def test_a_saved_change_is_on_the_page_and_is_found(tmp_path: Path) -> None:
    sentence = "A sentence that was saved just now."
    with live(copied(tmp_path)) as address:
        before = found(address, "")
        seconds_to_page(tmp_path, address, sentence, "docs/theory/01-collectives")
        assert found(address, sentence) == ["theory/01-collectives/"]
        assert found(address, "") == before  # the pages that didn't change are still found
