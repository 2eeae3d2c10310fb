"""Many diagrams are parsed by several processes, which say of each what one alone says."""

import os

import pytest

from notelab.memo import Shelf
from notelab.mermaid import diagrams, many
from notelab.mermaid.diagrams import Diagrams
from notelab.mermaid.parsed import Parsed
from tests.notelab.mermaid.diagram_corpus import BROKEN, VALID

TEXTS = [text for text, *_ in (*VALID.values(), *BROKEN.values())]


def _die(texts: list[str]) -> None:
    os._exit(1)


def silent(what: str, done: int, of: int) -> None:
    """Tell nobody."""


def test_what_several_processes_say_is_what_one_says() -> None:
    told: list[tuple[int, int]] = []
    assert len(TEXTS) >= diagrams.WORTH_IT
    together = Diagrams(Shelf(None))
    together.ahead([*TEXTS, *TEXTS], lambda _, done, of: told.append((done, of)))
    assert told[-1] == (len(TEXTS), len(TEXTS))  # a text that stands twice is parsed once
    known = {text: together.parse(text) for text in TEXTS}
    assert together._engine is None, "all of them were parsed ahead"
    alone = Diagrams(Shelf(None))
    assert {text: alone.parse(text) for text in TEXTS} == known


def test_few_diagrams_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "parse", lambda texts: pytest.fail("a process for so few"))
    Diagrams(Shelf(None)).ahead(TEXTS[: diagrams.WORTH_IT - 1], silent)


def test_a_process_that_dies_leaves_its_diagrams_to_whoever_asks_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(many, "_parse", _die)
    shared = Diagrams(Shelf(None))
    shared.ahead(TEXTS, silent)
    assert shared.parse(TEXTS[0]) is not None


def test_processes_stop_where_the_budget_of_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagrams, "_ALTOGETHER", 0.0)
    monkeypatch.setattr(diagrams, "_OF_MANY", 0.0)
    told: list[int] = []
    shared = Diagrams(Shelf(None))
    shared.ahead(TEXTS, lambda _, done, of: told.append(done))
    assert len(told) == 1
    assert sum(shared.parse(text) is None for text in TEXTS) == len(TEXTS) - told[0]
    assert "on diagrams" in shared.missing


@pytest.mark.parametrize(("each", "stops"), [(0.05, False), (0.2, True)])
def test_very_many_are_parsed_also_where_one_costs_twice_as_much(
    monkeypatch: pytest.MonkeyPatch, each: float, stops: bool
) -> None:
    settled = Parsed(ok=True)
    batches = ([(f"{at}-{n}", settled, each) for n in range(100)] for at in range(20))
    monkeypatch.setattr(many, "parse", lambda texts: batches)
    told: list[int] = []
    Diagrams(Shelf(None)).ahead([*map(str, range(2000))], lambda _, done, of: told.append(done))
    assert (told[-1] < 2000) is stops
