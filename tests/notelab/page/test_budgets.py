"""What a hostile page may cost a run, and what it may hide."""

import shutil

import pytest

from notelab.cache import CacheFile
from notelab.check import check_labs
from notelab.mermaid import engine as mermaid_engine
from notelab.mermaid.engine import Engine
from notelab.mermaid.parsed_diagrams import Diagrams, Parsed
from notelab.page.reading import read
from tests.notelab.scratch import Scratch

FRONT = "---\ntitle: x\n---\n\n"


class Clock:
    """Processor time that passes only when a diagram is parsed."""

    def __init__(self) -> None:
        self.now, self.parsed, self.cost = 0.0, 0, 0.0

    def process_time(self) -> float:
        return self.now

    def parse(self, text: str) -> Parsed:
        self.parsed += 1
        self.now += self.cost
        return Parsed(ok=False, error="too slow", settled=False)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(mermaid_engine, "time", fake_clock)
    monkeypatch.setattr(Engine, "__init__", lambda engine: None)
    monkeypatch.setattr(Engine, "parse", fake_clock.parse)
    return fake_clock


def test_a_run_gives_up_on_diagrams_after_a_few_seconds_and_says_so(clock: Clock) -> None:
    clock.cost = 3.0
    shared = Diagrams(CacheFile(None))
    answers = [shared.parse(f"gantt {number}") for number in range(6)]
    assert [answer is not None for answer in answers] == [True, True, False, False, False, False]
    assert "6 s on diagrams" in shared.unavailable_reason


def test_a_thousand_diagrams_of_the_usual_cost_are_all_parsed(clock: Clock) -> None:
    clock.cost = 0.02
    shared = Diagrams(CacheFile(None))
    assert all(shared.parse(f"gantt {number}") for number in range(1000))


def test_all_labs_of_a_run_share_one_budget(scratch: Scratch, clock: Clock) -> None:
    clock.cost = 5.0
    scratch.replace("note.md", "\n## ", "\n```mermaid\ngantt\n```\n\n## ")
    second = scratch.lab.with_name("second")
    shutil.copytree(scratch.lab, second)
    note = second / "note.md"
    note.write_text(note.read_text("utf-8").replace("\ngantt\n", "\npie\n"), "utf-8")
    findings = check_labs({scratch.lab: None, second: None}, scratch.bench()).findings
    assert [
        finding.code for finding in findings if finding.filename.endswith("second/note.md")
    ] == ["N307"]
    assert clock.parsed == 1


def test_a_diagram_beyond_the_budget_is_a_finding(scratch: Scratch, clock: Clock) -> None:
    clock.cost = 5.0
    scratch.replace_both("\n## ", "\n```mermaid\ngantt\n```\n\n```mermaid\ngantt\n a\n```\n\n## ")
    # The translation has the same two; each text is parsed once.
    assert sorted(scratch.codes()) == ["N302", "N302", "N307", "N307"]
    assert clock.parsed == 1


def test_a_page_of_many_long_paragraphs_is_read_up_to_a_budget_and_the_rest_said() -> None:
    page = FRONT + "\n\n".join(["[" * 10_000] * 20)
    unread = read(page).unread
    assert [marker.description for marker in unread] == [
        "has too many long paragraphs; this one and the rest are not read"
    ]
    assert unread[0].span.row == 11


def test_code_spans_that_never_close_cost_a_look_each() -> None:
    # Before, each took a search through the whole paragraph: ten seconds for one such page.
    page = FRONT + "\n\n".join(["`a ``b ```c " * 820] * 3)
    assert read(page).unread == []


@pytest.mark.parametrize(
    "hidden",
    [
        "\u202e", "\u2066", "\u200b", "\u200d", "\u200f", "\u00ad", "\u2060", "\ufeff", "\u3164",
        "\U000e0041",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "place",
    [
        "uses",
        *(
            pytest.param(slow_place, marks=pytest.mark.ci)
            for slow_place in ("counts", "```mermaid\ngantt")
        ),
    ],
)
def test_an_unseen_character_is_found_at_its_place(
    scratch: Scratch, hidden: str, place: str
) -> None:
    if place.startswith("```"):
        scratch.replace("note.md", "\n## ", f"\n{place} {hidden}\n```\n\n## ")
    else:
        scratch.replace("note.md", place, place[:2] + hidden + place[2:])
    finding = next(
        candidate for candidate in scratch.check("note.md").findings if candidate.code == "N113"
    )
    assert f"U+{ord(hidden):04X}" in finding.message
    line = scratch.read("note.md").split("\n")[finding.span.row - 1]
    assert line[finding.span.column - 1] == hidden


def test_accents_and_pictures_hide_nothing(scratch: Scratch) -> None:
    shown = "año \u00a0 e\u0301 → ≤ ✓ 👩\u200d💻 ❤\ufe0f\u200d🔥"
    scratch.replace("note.md", "\n## Connect", f"\n{shown}\n\n## Connect")
    assert scratch.codes("note.md") == []
