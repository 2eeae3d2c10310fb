"""`mkdocs serve` shows a saved change to a note within five seconds, on the whole workbook."""

from __future__ import annotations

from pathlib import Path

from tests.site.live_server import copied, live, seconds_to_page


def test_a_saved_change_to_a_note_is_on_the_page_in_five_seconds(tmp_path: Path) -> None:
    book = copied(tmp_path)
    with live(book) as address:
        assert seconds_to_page(book, address, "A sentence saved just now.") < 5
