"""`shardbook compare`: yours first, committed; then theirs, by the lines."""

import json
import shutil
from pathlib import Path

import pytest

from tests.notelab.scratch import UPSTREAM, Scratch, commit_all, git

CHOICES = """
- **My count.** The count `uses` grows before the work is done: `pkg/scaler.py:L15`.
- **My start.** A new one begins at nought, as `uses` says: `pkg/scaler.py:L9-L11`.
"""


@pytest.fixture
def learner_lab(scratch: Scratch) -> Path:
    """Start a lab whose solution is the scratch lab's finished note, all of it committed."""
    assert scratch.run("new", "mine", "--from", "01-scratch").returncode == 0
    commit_all(scratch.book, "blank")
    return scratch.book / "experiments/mine"


@pytest.fixture
def committed_lab(scratch: Scratch, learner_lab: Path) -> Path:
    """Write two choices in the lab, and commit them."""
    note = learner_lab / "note.md"
    note.write_text(note.read_text("utf-8") + CHOICES, "utf-8")
    commit_all(scratch.book, "mine")
    return learner_lab


@pytest.mark.usefixtures("committed_lab")
def test_choices_are_matched_missed_or_yours_each_with_its_lines(scratch: Scratch) -> None:
    done = scratch.run("compare", "--output-format", "json")
    assert done.returncode == 0, done
    comparison = json.loads(done.stdout)
    assert set(comparison) == {"matched", "missed", "yours"}
    [pair], [missed], [unmatched] = comparison["matched"], comparison["missed"], comparison["yours"]
    assert (pair["yours"]["title"], pair["solution"]["title"]) == ("My count", "Counted before")
    assert pair["yours"]["citations"] == [
        {"source": "up", "path": "pkg/scaler.py", "start": 15, "end": 15, "symbol": "Scaler.apply"}
    ]
    assert pair["solution"]["filename"] == "experiments/01-scratch/note.md"
    assert missed["solution"]["title"] == "Two amounts" and missed["yours"]["citations"] == []
    assert unmatched["yours"]["title"] == "My start" and unmatched["solution"]["citations"] == []


@pytest.mark.usefixtures("committed_lab")
def test_a_terminal_of_80_columns_shows_it_without_a_line_of_source(scratch: Scratch) -> None:
    done = scratch.run("compare", "experiments/mine")
    assert done.returncode == 0, done
    for heading in ("Matched: 1", "Missed: 1", "Yours alone: 1"):
        assert heading in done.stdout
    assert "    pkg/scaler.py:L15\n" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert not [line for line in UPSTREAM.splitlines() if len(line) > 8 and line in done.stdout]


def test_the_page_is_written_over_nothing_but_itself(scratch: Scratch, committed_lab: Path) -> None:
    page = committed_lab / "comparison.md"
    for _ in range(2):
        assert scratch.run("compare", "--page").returncode == 0
    text = page.read_text("utf-8")
    assert "## Missed: 1" in text and "(../01-scratch/note.md)" in text
    assert "`pkg/scaler.py:L22-L25`" in text
    page.write_text("# Mine\n")
    done = scratch.run("compare", "--page")
    assert done.returncode == 2 and "isn't a comparison" in done.stderr
    assert page.read_text() == "# Mine\n"
    # A page with the comment of an older version is replaced.
    page.write_text("<!-- written by shardbook compare --page; written anew each time -->\n")
    assert scratch.run("compare", "--page").returncode == 0
    assert page.read_text("utf-8") == text


def test_without_a_choice_nothing_is_shown(scratch: Scratch, learner_lab: Path) -> None:
    done = scratch.run("compare", str(learner_lab))
    assert (done.returncode, done.stdout) == (2, "")
    assert "no choice with a citation yet" in done.stderr


def test_the_solution_waits_for_the_labs_minimum(scratch: Scratch, committed_lab: Path) -> None:
    note = committed_lab / "note.md"
    note.write_text(note.read_text("utf-8").replace("- **My start.**", "**My start.**"), "utf-8")
    git(scratch.book, "commit", "-qam", "one choice less")
    done = scratch.run("compare")
    assert (done.returncode, done.stdout) == (2, "")
    assert "experiments/mine/note.md has 1 of 2 choices" in done.stderr


def test_of_what_is_missed_the_labs_candidates_are_listed_and_the_rest_counted(
    scratch: Scratch, committed_lab: Path
) -> None:
    file = committed_lab / "lab.toml"
    text = file.read_text("utf-8")
    file.write_text(text.replace("solution =", 'candidates = ["Elsewhere"]\nsolution =', 1))
    done = scratch.run("compare")
    assert "Missed: 1\n  1 more: `shardbook compare --all` lists them\n" in done.stdout
    assert "Two amounts" in scratch.run("compare", "--all").stdout
    file.write_text(text.replace("solution =", 'candidates = ["A scratch note"]\nsolution =', 1))
    assert "Two amounts" in scratch.run("compare").stdout


@pytest.mark.parametrize("state", ["changed", "staged", "untracked", "ignored"])
def test_uncommitted_notes_are_not_compared(
    scratch: Scratch, committed_lab: Path, state: str
) -> None:
    note = committed_lab / "note.md"
    if state in ("untracked", "ignored"):
        git(scratch.book, "rm", "-q", "--cached", str(note))
        git(scratch.book, "commit", "-qm", "not this")
        if state == "ignored":
            scratch.book.joinpath(".gitignore").write_text("note.md\n")
    else:
        note.write_text(note.read_text("utf-8") + "\nMore.\n", "utf-8")
    if state == "staged":
        git(scratch.book, "add", ".")
    done = scratch.run("compare")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not committed: experiments/mine/note.md" in done.stderr
    assert "hint: `git add experiments/mine && git commit" in done.stderr


def test_a_change_elsewhere_is_no_reason_to_refuse(scratch: Scratch, committed_lab: Path) -> None:
    scratch.book.joinpath("other.txt").write_text("x\n")
    (committed_lab / "lab.toml").write_text((committed_lab / "lab.toml").read_text("utf-8") + "\n")
    assert scratch.run("compare").returncode == 0


@pytest.mark.usefixtures("committed_lab")
def test_what_a_strangers_repository_would_have_git_run_is_not_run(scratch: Scratch) -> None:
    trace = scratch.root / "ran"
    git(scratch.book, "config", "core.fsmonitor", f"touch {trace}; false")
    assert scratch.run("compare").returncode == 0
    assert not trace.exists()


def test_outside_a_repository_it_says_how_to_commit(scratch: Scratch, committed_lab: Path) -> None:
    away = scratch.root / "away"
    away.mkdir()
    for name in ("01-scratch", "mine"):
        shutil.copytree(scratch.book / "experiments" / name, away / name)
    text = (away / "mine/lab.toml").read_text("utf-8")
    (away / "mine/lab.toml").write_text(
        text.replace('solution = ["../01-scratch/note.md"]', 'solution = ["theirs.md"]')
    )
    (away / "mine/theirs.md").write_text(scratch.read("note.md"), "utf-8")
    done = scratch.run("compare", str(away / "mine"))
    assert done.returncode == 2 and "is in no git repository" in done.stderr
    assert "`git init`" in done.stderr


@pytest.mark.parametrize(
    ("solution", "message"),
    [
        ("[]", "names no solution"),
        ('["gone.md"]', "gone.md is missing"),
        ('["../../../../etc/hosts"]', "leaves the repository"),
    ],
)
def test_without_a_solution_it_says_what_lab_toml_lacks(
    scratch: Scratch, committed_lab: Path, solution: str, message: str
) -> None:
    file = committed_lab / "lab.toml"
    text = file.read_text("utf-8").replace('["../01-scratch/note.md"]', solution)
    file.write_text(text)
    done = scratch.run("compare", "experiments/mine")
    assert done.returncode == 2 and message in done.stderr, done


def test_a_solution_at_another_commit_is_compared(scratch: Scratch, committed_lab: Path) -> None:
    (scratch.upstream / "pkg/new.py").write_text("x = 1\n")
    commit_all(scratch.upstream, "two")
    assert scratch.run("pin", "up", "main", "--lab", str(committed_lab)).returncode == 0
    done = scratch.run("compare")
    assert done.returncode == 0 and "lines may have moved" in done.stderr


def test_which_lab_is_asked_where_two_could_be_meant_and_the_one_stood_in_is_taken(
    scratch: Scratch, committed_lab: Path
) -> None:
    assert scratch.run("new", "other", "--from", "01-scratch").returncode == 0
    done = scratch.run("compare")
    assert done.returncode == 2 and "experiments/mine, experiments/other" in done.stderr
