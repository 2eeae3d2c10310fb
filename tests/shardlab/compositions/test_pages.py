"""The museum's pages are what its record and its words give."""

import re

import pytest

from tests.shardlab.compositions import pages
from tests.shardlab.compositions.room import ROOMS, recorded
from tests.shardlab.compositions.rooms import (  # noqa: F401  (their rooms)
    test_context_rooms,
    test_corpus_rooms,
    test_data_rooms,
    test_expert_rooms,
    test_tensor_rooms,
)


@pytest.mark.parametrize("language", pages.PAGES)
def test_a_page_is_what_the_record_gives(language: str) -> None:
    assert pages.PAGES[language].read_text("utf-8") == pages.page(language), (
        "run `python -m tests.shardlab.compositions.pages`"
    )


def test_every_room_is_recorded_and_described() -> None:
    anchors = re.findall(r"<a id=\"([\w-]+)\"", pages.page("en"))
    assert anchors.pop() == "ourselves"
    assert sorted(anchors) == sorted(ROOMS) == sorted(recorded())


def test_every_thread_has_one_state_and_every_room_a_status() -> None:
    museum = pages.load_museum()
    linked = {thread for room in museum["room"] for thread in room["threads"]}
    assert linked == set(museum["threads"]["state"])
    for room in museum["room"]:
        assert len({"fixed", "unfixed"} & set(room)) + ("note" in room) >= 1, room["name"]
        assert not {"fixed", "unfixed"} <= set(room), room["name"]
    for language in pages.PAGES:
        threads = re.findall(
            r"\(https://github\.com/[^)]*\)(?: \(([^)]*)\))?", pages.page(language)
        )
        states = {pages.WORDS[language][state] for state in ("open", "closed", "merged", "unknown")}
        assert set(threads) == states


def test_a_number_in_a_sentence_comes_from_the_record() -> None:
    # Both languages get the number from the record, so neither has it written by hand.
    assert pages.fill("{ratio:.2f} of it", {"ratio": 0.5}) == "0.50 of it"
    with pytest.raises(KeyError):
        pages.fill("{ratio:.2f} of it", {"size": 0.5})
