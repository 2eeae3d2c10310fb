"""Each message of each drawn sequence goes from whom its source says to whom it says, in order."""

from __future__ import annotations

import re

from tests.site.drawing.drawn import EACH, Drawings

_ACTOR = re.compile(r"^\s*participant (\w+) as (.+)$", re.MULTILINE)
_MESSAGE = re.compile(r"^\s*(\w+)->>(\w+): (.+)$", re.MULTILINE)
ARROWHEAD = 6  # px that a line ends before the one whom it reaches


@EACH
def test_each_message_goes_from_and_to_whom_its_source_says(
    drawings: Drawings, language: str, width: int
) -> None:
    charts = [
        drawing
        for drawing in drawings(language, width, "light")
        if drawing.facts["kind"] == "sequence"
    ]
    assert charts  # theory 1's ring
    for page, text, facts in charts:
        places = {actor["text"]: actor["centre"] for actor in facts["actors"]}
        names = dict(_ACTOR.findall(text))
        assert sorted(places, key=lambda name: places[name]) == list(names.values()), page
        wanted = _MESSAGE.findall(text)
        assert [words["text"] for words in facts["words"]] == [what for *_, what in wanted], page
        for (sender, receiver, what), line in zip(wanted, facts["messages"], strict=True):
            assert abs(line["from"] - places[names[sender]]) < ARROWHEAD, (page, what)
            assert abs(line["to"] - places[names[receiver]]) < ARROWHEAD, (page, what)
