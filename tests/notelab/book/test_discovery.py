"""A changed file selects every lab that it affects, wherever the lab and its pages are."""

import shutil
from pathlib import Path

import pytest

from notelab.book.discovery import default_labs, select_labs
from notelab.errors import NotelabError
from notelab.lab.lab import load
from notelab.page import results_page
from tests.notelab.generated_page import generated_page
from tests.notelab.scratch import Scratch

BORROWING = """\
[lab]
title = "Borrowing"
languages = ["en"]
sources-from = "{up}"
pages = ["../../notes/*.md"]
"""


@pytest.fixture
def spread(scratch: Scratch) -> Scratch:
    """A lab at courses/one, whose page and its results lie in notes/; lab 01 lends the pins."""
    folder = scratch.book / "courses" / "one"
    folder.mkdir(parents=True)
    folder.joinpath("lab.toml").write_text(BORROWING.format(up="../../experiments/01-scratch"))
    notes = scratch.book / "notes"
    notes.mkdir()
    notes.joinpath("n.md").write_text("# n\n\nWhat `combine` returns (`pkg/scaler.py:L22-L25`).\n")
    notes.joinpath("inputs.json").write_text("1")
    notes.joinpath("made.md").write_text(generated_page("# x\n", inputs=b"1"))
    assert scratch.run("lock", "courses/one").returncode == 0
    assert scratch.run("check").returncode == 0
    return scratch


def labs(scratch: Scratch, *paths: str) -> dict[str, bool]:
    """Each lab that is checked, and whether as a whole."""
    wanted, _ = select_labs([scratch.book / path for path in paths], load, may_be_nothing=True)
    return {lab.name: only is None for lab, only in wanted.items()}


def test_all_labs_of_the_repository_are_checked_and_none_of_another(spread: Scratch) -> None:
    foreign = spread.book / "clone"
    shutil.copytree(spread.lab, foreign / "experiments" / "99-other")
    (foreign / ".git").mkdir()
    hidden = spread.book / ".cache" / "lab"
    hidden.mkdir(parents=True)
    (hidden / "lab.toml").write_text("")
    assert [lab.name for lab in default_labs(spread.book)] == ["one", "01-scratch"]


def test_what_git_ignores_is_no_lab(spread: Scratch) -> None:
    shutil.copytree(spread.lab, spread.book / "site" / "experiments" / "01-scratch")
    assert len(default_labs(spread.book)) == 3
    (spread.book / ".gitignore").write_text("*.pyc\n/site/\n")
    assert [lab.name for lab in default_labs(spread.book)] == ["one", "01-scratch"]
    assert spread.run("check").returncode == 0


def test_outside_of_a_repository_only_what_is_near_is_searched(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (deep / "lab.toml").write_text("")
    with pytest.raises(NotelabError):
        default_labs(tmp_path)
    (tmp_path / "a" / "lab.toml").write_text("")
    assert default_labs(tmp_path) == [tmp_path / "a"]


def test_to_find_a_notes_lab_no_other_is_read(
    spread: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    inputs = results_page.input_files
    monkeypatch.setattr(results_page, "input_files", lambda page: read.append(page) or inputs(page))
    assert labs(spread, "experiments/01-scratch/note.md") == {"01-scratch": False}
    assert not read
    assert labs(spread, "notes/inputs.json") == {"one": True}


def test_a_broken_page_that_lies_elsewhere_is_found_when_handed_over(spread: Scratch) -> None:
    page = spread.book / "notes" / "n.md"
    page.write_text(page.read_text().replace("L22-L25", "L22-L29"))
    assert spread.run("check", "courses/one").returncode == 1
    done = spread.run("check", "--quiet", "notes/n.md")
    assert done.returncode == 1
    assert "N205" in done.stdout


@pytest.mark.parametrize(
    ("file", "hang"),
    [
        ("notes/n.md", {"one": False}),
        ("experiments/01-scratch/note.md", {"01-scratch": False}),
        ("experiments/01-scratch/up-sha.txt", {"01-scratch": True, "one": True}),
        ("experiments/01-scratch/lab.toml", {"01-scratch": True, "one": True}),
        ("experiments/01-scratch/citations.lock", {"01-scratch": True, "one": True}),
        ("courses/one/citations.lock", {"one": True}),
        ("notes/inputs.json", {"one": True}),
        ("README", {}),
    ],
)
def test_a_file_selects_its_labs(spread: Scratch, file: str, hang: dict[str, bool]) -> None:
    (spread.book / "README").touch()
    assert labs(spread, file) == hang


def test_a_pin_of_any_name_and_a_changed_input_fail_the_hook(spread: Scratch) -> None:
    spread.lab.joinpath("up-sha.txt").rename(spread.lab / "PIN")
    spread.replace("lab.toml", "up-sha.txt", "PIN")
    assert spread.run("check", "--quiet", "experiments/01-scratch/PIN").returncode == 0
    spread.write("PIN", "0" * 39 + "\n")
    assert "N121" in spread.run("check", "--quiet", "experiments/01-scratch/PIN").stdout
    spread.write("PIN", f"{spread.commit}\n")
    spread.book.joinpath("notes/inputs.json").write_text("2")
    assert "N404" in spread.run("check", "--quiet", "notes/inputs.json").stdout


def test_a_changed_results_page_selects_every_lab_that_may_quote_it(spread: Scratch) -> None:
    spread.book.joinpath("notes/RESULTS.md").write_text('| <a id="a"></a> a | **2** |\n')
    spread.replace("note.md", "In lab 02", "In lab 02 [1](../../notes/RESULTS.md#a)")
    done = spread.run("check", "--quiet", "notes/RESULTS.md")
    assert "N402" in done.stdout


def test_a_hook_says_nothing_of_files_that_no_lab_knows(spread: Scratch) -> None:
    spread.book.joinpath("setup.cfg").write_text("")
    done = spread.run("check", "--quiet", "setup.cfg")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
