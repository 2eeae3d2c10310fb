"""The museum has every room, and says of each what it must."""

import re

import pytest

from pages import museum


def test_every_room_is_recorded_and_described() -> None:
    anchors = re.findall(r"<a id=\"([\w-]+)\"", museum.page("en"))
    assert anchors.pop() == "ourselves"
    assert sorted(anchors) == sorted(museum.program().ROOMS) == sorted(museum.recorded())


def test_every_thread_has_one_state_and_every_room_a_status() -> None:
    rooms = museum.load_museum()
    linked = {thread for room in rooms["room"] for thread in room["threads"]}
    assert linked == set(rooms["threads"]["state"])
    for room in rooms["room"]:
        assert len({"fixed", "unfixed"} & set(room)) + ("note" in room) >= 1, room["name"]
        assert not {"fixed", "unfixed"} <= set(room), room["name"]
    for language in museum.WORDS:
        threads = re.findall(
            r"\(https://github\.com/[^)]*\)(?: \(([^)]*)\))?", museum.page(language)
        )
        states = {
            museum.WORDS[language][state] for state in ("open", "closed", "merged", "unknown")
        }
        assert set(threads) == states


@pytest.mark.parametrize("language", museum.WORDS)
def test_a_number_in_a_sentence_comes_from_the_record(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both languages get the number from the record, so neither has it written by hand.
    numbers = museum.recorded()
    numbers["averaged-norm"]["ratio"] = 7.6543
    monkeypatch.setattr(museum, "recorded", lambda: numbers)
    assert "7.65" in museum.page(language)
    del numbers["averaged-norm"]["ratio"]
    with pytest.raises(KeyError, match="ratio"):
        museum.page(language)
