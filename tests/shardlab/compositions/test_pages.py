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


def test_every_room_is_recorded_and_told_of() -> None:
    names = re.findall(r"<a id=\"([\w-]+)\"", pages.page("en"))
    assert names.pop() == "ourselves"
    assert sorted(names) == sorted(ROOMS) == sorted(recorded())


def test_a_number_in_a_sentence_comes_from_the_record() -> None:
    # Both languages say the same of it, so a number written out by hand would stand in neither.
    assert pages.fill_in_numbers("{ratio:.2f} of it", {"ratio": 0.5}) == "0.50 of it"
    with pytest.raises(KeyError):
        pages.fill_in_numbers("{ratio:.2f} of it", {"size": 0.5})
