"""The museum and "Since the pin" agree on which faults a newer release has fixed."""

import re
from typing import Any

import pytest

from notelab.page.citation import format_citation
from pages.blocks import ROOT
from pages.museum import load_museum
from pages.since_record import load_data, load_judged

MUSEUM = "experiments/36-compositions/MUSEUM.md"
ROOMS = load_museum()["room"]
SINCE = {since.source: since for since in load_data()}
CITATION = re.compile(r"`([\w./-]+\.(?:py|cpp):L\d+(?:-L\d+)?)`")
MEGATRON = [room for room in ROOMS if {"fixed", "unfixed"} & set(room)]


def citations(room: dict[str, Any]) -> set[str]:
    """Return the lines of Megatron-LM that a room cites."""
    return {cited for cited in CITATION.findall(room["cause"]["en"]) if cited.startswith("meg")}


def changed_lines() -> dict[str, str]:
    """Return the citations on the list, and whether their lines were edited or are gone."""
    return {
        format_citation(read.old.path, read.old.start, read.old.end): read.kind
        for read in SINCE["megatron"].reread
    }


def verdicts(room: dict[str, Any]) -> dict[str, str]:
    """Return how the room's own sentences were judged at the newer release."""
    return {
        judged.cited: judged.verdict
        for judged in load_judged()
        if MUSEUM in judged.pages and judged.cited in citations(room)
        if not judged.says or judged.says in room["cause"]["en"]
    }


def release(name: str) -> tuple[int, ...]:
    """Return a release's numbers, to compare releases by."""
    return tuple(int(number) for number in re.findall(r"\d+", name))


@pytest.mark.parametrize("room", MEGATRON, ids=lambda room: room["name"])
def test_a_room_and_since_say_the_same_of_a_fault(room: dict[str, Any]) -> None:
    newer = SINCE["megatron"].releases[1]
    assert citations(room), "a room of Megatron-LM cites its lines"
    judged = verdicts(room)
    if "fixed" in room:
        assert release(room["fixed"]) <= release(newer)
        assert judged, f"fixed in {room['fixed']}: judge its sentences in since-judged.toml"
        still = [cited for cited, verdict in judged.items() if verdict == "true"]
        assert not still, f"fixed in {room['fixed']}, and judged as still true"
        assert set(judged) <= set(changed_lines()), "since says that these lines are unchanged"
    else:
        assert room["unfixed"] == newer, f"look at {newer}, then say whether it is fixed there"
        gone = [cited for cited, verdict in judged.items() if verdict != "true"]
        assert not gone, f"not fixed in {newer}, and judged as no longer true"
        edited = citations(room) & set(changed_lines())
        if room.get("same_lines"):
            assert not edited, f"since says that {newer} changed these lines"
        else:
            assert edited <= set(judged), "edited lines: judge the sentence in since-judged.toml"


def test_a_false_sentence_of_the_museum_belongs_to_a_fixed_room() -> None:
    page = (ROOT / MUSEUM).read_text("utf-8")
    fixed = {cited for room in ROOMS if "fixed" in room for cited in verdicts(room)}
    for judged in load_judged():
        if MUSEUM in judged.pages:
            assert judged.says in page, f"{judged.cited}: the museum no longer says this"
            assert judged.verdict == "true" or judged.cited in fixed
