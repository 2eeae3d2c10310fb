"""`shardbook recall` as a learner runs it: asked, graded, remembered, asked again when due."""

import json
import os
import subprocess
import sys
import termios
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from notelab.recall.history import History, Review
from tests.limits import LIMIT
from tests.notelab.in_process import run_shardbook
from tests.notelab.scratch import Scratch
from tests.running import run_program

CARDS = """
??? question own "Counted when?"
    First, `uses` at `pkg/scaler.py:L14-L15`.

??? question number size "How large?"
    **1.5 MiB**: six times 256 KiB.
"""
CITING, SIZE = (f"experiments/01-scratch/note#{name}" for name in ("own", "size"))


class Learner:
    """Runs recall in a scratch lab that has cards, with a data folder of its own."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self.data = scratch.root / "data"
        self.history_file = self.data / "shardbook" / "recall.jsonl"
        scratch.write("note.md", scratch.read("note.md") + CARDS)
        scratch.lock()
        self.environment = {
            **os.environ,
            "SHARDBOOK_CACHE": str(scratch.root / "cache"),
            "XDG_DATA_HOME": str(self.data),
            "NO_COLOR": "1",
        }

    def start(self, *options: str, stdin: int | None = subprocess.PIPE) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "notelab", "recall", *options]
        return subprocess.Popen(
            command, cwd=self.scratch.book, env=self.environment, text=True, encoding="utf-8",
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def type_lines(self, *lines: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        """Return how a sitting ends, and what it says on either stream."""
        done = run_shardbook(
            "recall", *options, folder=self.scratch.book, environment=self.environment,
            typed="".join(f"{line}\n" for line in lines),
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def reviews(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.history_file.read_text().splitlines()]

    def add_review(self, card: str, days_ago: float, grade: int = 3, evidence: str = "") -> None:
        at = datetime.now(UTC) - timedelta(days=days_ago)
        History(self.history_file.parent).add(
            Review(card, at, grade, evidence or self.evidence(card))
        )

    def evidence(self, card: str) -> str:
        from notelab.recall.cards import collect_cards

        cards = collect_cards({self.scratch.lab: None}, "en", self.scratch.bench())
        return next(candidate.evidence for candidate in cards if candidate.id == card)


@pytest.fixture
def learner(scratch: Scratch) -> Learner:
    return Learner(scratch)


def test_a_card_is_asked_shown_graded_and_written_down(learner: Learner) -> None:
    status, output, errors = learner.type_lines("", "good", "1,5 MiB", "4")
    assert (status, errors) == (0, "")
    assert (
        output.index("Counted when?") < output.index("First, `uses`") < output.index("How large?")
    )
    assert "\nright\n" in output
    assert [(review["card"], review["grade"]) for review in learner.reviews()] == [
        (CITING, 3),
        (SIZE, 4),
    ]
    assert "2 answered, 0 left, of 2 cards; next in" in output


def test_at_a_terminal_a_key_is_enough(learner: Learner) -> None:
    keyboard, terminal = os.openpty()
    process = learner.start("--limit", "1", stdin=terminal)
    assert process.stdout
    for prompt, key in [("any key", b" "), ("4 easy", b"2")]:
        output = ""
        while prompt not in output:
            letter = process.stdout.read(1)
            assert letter, output
            output += letter
        while termios.tcgetattr(terminal)[3] & termios.ICANON:  # until a key alone will do
            pass
        os.write(keyboard, key)
    assert "1 answered, 1 left" in process.communicate(timeout=LIMIT)[0]
    assert learner.reviews()[0]["grade"] == 2
    os.close(keyboard)
    os.close(terminal)


def test_a_card_that_was_answered_is_asked_again_only_when_it_is_due(learner: Learner) -> None:
    learner.add_review(CITING, 30)
    learner.add_review(SIZE, 0.001, grade=4)
    status, output, _ = learner.type_lines("", "3")
    assert status == 0
    assert "Counted when?" in output and "How large?" not in output
    assert "1 answered, 0 left, of 2 cards; next in" in output


def test_a_card_whose_cited_lines_changed_says_that_it_is_stale(learner: Learner) -> None:
    learner.add_review(CITING, 0.001, grade=4, evidence="0123456789abcdef")
    learner.add_review(SIZE, 0.001, grade=4)
    output = learner.type_lines("", "3")[1]
    assert output.index("stale: the lines that it cites have changed") < output.index(
        "Counted when?"
    )
    assert "How large?" not in output
    assert "stale" not in learner.type_lines()[1]  # answered anew, it rests on what there is now


def test_a_wrong_number_is_graded_and_what_is_none_is_asked_again(learner: Learner) -> None:
    learner.add_review(CITING, 0.001, grade=4)
    output = learner.type_lines("a lot", "1.5 MB")[1]
    assert "expected a number with its unit" in output
    assert "wrong, graded 1 (again)" in output and "**1.5 MiB**" in output
    assert learner.reviews()[-1]["grade"] == 1


@pytest.mark.parametrize(
    ("unit", "words"),
    [("MiB", "\nright\n"), ("1.5 MiB", "\nright\n"), ("GB", "wrong, graded 1"), ("", "")],
)
def test_a_number_without_its_unit_is_not_judged(learner: Learner, unit: str, words: str) -> None:
    learner.add_review(CITING, 0.001, grade=4)
    output = learner.type_lines("1.5", unit, "3", "3")[1]
    question = output.index("in which unit?")
    assert "right" not in output[:question] and "wrong" not in output[:question]
    assert words in output[question:]
    assert ("right" in output or "wrong" in output) == bool(unit)


def exchange(learner: Learner, *options: str) -> tuple[int, str, str]:
    return learner.type_lines(options=options)


def test_answers_go_to_another_machine_and_back_whole(learner: Learner, tmp_path: Path) -> None:
    learner.add_review(CITING, 3)
    learner.add_review(SIZE, 2, grade=4)
    file, here = str(tmp_path / "answers.json"), learner.history_file.read_bytes()
    assert exchange(learner, "--export", file)[:2] == (0, f"2 answers to {file}\n")
    exported = json.loads(Path(file).read_bytes())
    assert (exported["format"], exported["version"]) == ("shardbook-recall", 1)
    assert [review["card"] for review in exported["reviews"]] == [CITING, SIZE]
    assert exchange(learner, "--import", file)[1].startswith("0 of 2 answers are new")
    assert learner.history_file.read_bytes() == here  # nothing twice
    learner.history_file.write_bytes(here.splitlines(keepends=True)[0][:-1])  # killed while writing
    learner.add_review(CITING, 1)
    assert exchange(learner, "--import", file)[1].startswith("1 of 2 answers are new")
    both = exchange(learner, "--import", file, "--export", file)[1]
    assert both == f"0 of 2 answers are new; the others were here\n3 answers to {file}\n"
    assert len(json.loads(Path(file).read_bytes())["reviews"]) == 3
    assert learner.type_lines()[1] == "0 answered, of 2 cards; next in 6 days\n"


REVIEW = {"card": SIZE, "at": "2026-01-02T03:04:05.678Z", "grade": 3, "evidence": ""}
EXPORT = {"format": "shardbook-recall", "version": 1, "reviews": [REVIEW]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no export of recall"),
        ("{}", 'it has no "format": "shardbook-recall"'),
        ("[" * 100_000, "no export of recall"),
        (json.dumps(EXPORT | {"version": 2}), "its version is 2, and 1 is read here"),
        (json.dumps(EXPORT | {"reviews": [REVIEW, REVIEW | {"grade": 5}]}), "$.reviews[1].grade"),
        (json.dumps(EXPORT | {"reviews": [REVIEW | {"at": "9999-01-02T00:00:00Z"}]}), "to come"),
        (json.dumps(EXPORT | {"more": 1}), "more"),
    ],
)
def test_a_bad_export_changes_nothing(
    learner: Learner, tmp_path: Path, content: str, words: str
) -> None:
    learner.add_review(CITING, 3)
    before, file = learner.history_file.read_bytes(), tmp_path / "answers.json"
    file.write_text(content)
    status, output, errors = exchange(learner, "--import", str(file))
    assert (status, output) == (2, "")
    assert words in errors and errors.startswith("error: ") and "Traceback" not in errors
    assert learner.history_file.read_bytes() == before
    if content:  # nor is it replaced: it may be something else of the learner's
        assert exchange(learner, "--export", str(file))[0] == 2
        assert file.read_text() == content


def test_a_learner_may_start_with_an_import(learner: Learner, tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.write_text(json.dumps(EXPORT))
    assert exchange(learner, "--import", str(file))[:2] == (
        0, "1 of 1 answers are new; the others were here\n",
    )  # fmt: skip
    assert learner.reviews()[0]["card"] == SIZE
    assert exchange(learner, "--import", str(tmp_path / "none.json"))[0] == 2


def test_a_number_may_be_shown_without_typing_one(learner: Learner) -> None:
    learner.add_review(CITING, 0.001, grade=4)
    output = learner.type_lines("", "", "2")[1]
    assert "not that" not in output and "right" not in output
    assert learner.reviews()[-1]["grade"] == 2


@pytest.mark.parametrize("lines", [(), ("",), ("", "x", "7")])
def test_input_that_ends_early_grades_nothing(learner: Learner, lines: tuple[str, ...]) -> None:
    status, output, errors = learner.type_lines(*lines)
    assert (status, errors) == (0, "")
    assert output.endswith("\n0 answered, 2 left, of 2 cards\n")
    assert not learner.history_file.exists()


def test_a_closed_standard_input_is_an_end_and_no_fault(learner: Learner) -> None:
    done = run_program(
        ["sh", "-c", f"{sys.executable} -m notelab recall <&-"],
        cwd=learner.scratch.book,
        env=learner.environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 answered, 2 left" in done.stdout


def test_a_page_without_cards_is_refused_with_what_a_card_is(learner: Learner) -> None:
    status, output, errors = learner.type_lines(options=("--language", "es"))
    assert (status, output) == (2, "")
    assert "no recall cards" in errors and "??? question" in errors


def test_a_limit_leaves_the_rest_for_another_time(learner: Learner) -> None:
    output = learner.type_lines("", "3", options=("--limit", "1"))[1]
    assert "1 of 1" in output and "1 answered, 1 left, of 2 cards" in output


def test_a_sitting_that_is_broken_off_keeps_what_was_answered(learner: Learner) -> None:
    assert "1 answered, 1 left" in learner.type_lines("", "3", "")[1]
    assert [review["card"] for review in learner.reviews()] == [CITING]


def test_two_sittings_at_once_lose_nothing(learner: Learner) -> None:
    first, second = learner.start(), learner.start()
    for process in (first, second):  # both have read the history before either answers
        assert process.stdout
        assert any("Counted when?" in line for line in process.stdout)
    ends = [process.communicate("\n3\n1.5 MiB\n3\n", timeout=LIMIT) for process in (first, second)]
    assert [output.count("2 answered") for output, _ in ends] == [1, 1]
    cards = sorted(str(review["card"]) for review in learner.reviews())
    assert cards == [CITING, CITING, SIZE, SIZE]


def test_a_history_that_is_no_history_is_set_aside_and_goes_on(learner: Learner) -> None:
    learner.add_review(CITING, 0.001, grade=4)
    good = learner.history_file.read_bytes()
    spoilt = b"\x00\xff nonsense\n" + good + b'{"card": "torn'
    learner.history_file.write_bytes(spoilt)
    status, output, errors = learner.type_lines("1.5 MiB", "3")
    assert status == 0
    assert "2 of 3 lines of" in errors and "kept as recall.corrupt-" in errors
    assert (
        "Counted when?" not in output and "1 answered" in output
    )  # what could be read still counts
    (copy,) = learner.history_file.parent.glob("recall.corrupt-*.jsonl")
    assert copy.read_bytes() == spoilt
    assert learner.history_file.read_bytes().startswith(good)
    assert learner.type_lines()[2] == ""  # said once


def test_an_answer_after_a_torn_line_stands_on_a_line_of_its_own(tmp_path: Path) -> None:
    history = History(tmp_path)
    review = Review("a#b", datetime.now(UTC), 3, "")
    history.add(review)
    with history.path.open("ab") as stream:
        stream.write(b'{"card": "killed whi')
    history.add(review)
    assert history.read() == {"a#b": [review, review]}


def test_the_checker_does_not_load_what_only_recall_needs() -> None:
    code = "import sys, notelab.cli, notelab.check; print('fsrs' in sys.modules)"
    done = run_program([sys.executable, "-c", code], check=True)
    assert done.stdout.strip() == "False"
