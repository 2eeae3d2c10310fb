"""A note that says a name does not exist is the first to be read when it comes to."""

from pathlib import Path

import pytest

from notelab.repin import carry
from notelab.repin.carried import ChangedName, Repin
from notelab.repin.reading import Reread, Why, raise_alarm
from tests.notelab.scratch import UPSTREAM, Scratch, git

CLAIM = """
| no. | claim | evidence |
|---|---|---|
| <a id="claim-1"></a>1 | `undo` exists. | `uses` `pkg/scaler.py:L14-L15` |
"""


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    made = Scratch(tmp_path)
    made.replace("note.md", "so a failing call", "there is no `rollback`, so a failing call")
    made.write("note.md", made.read("note.md") + CLAIM)
    text = UPSTREAM.replace("self.uses += 1", "self.count()")
    made.upstream.joinpath("pkg/scaler.py").write_text(f"{text}\n\ndef rollback():\n    undo()\n")
    git(made.upstream, "commit", "-q", "-a", "-m", "two")
    return made


def raised(scratch: Scratch, *, mirror: bool = True) -> tuple[Repin, list[Reread], str]:
    new = git(scratch.upstream, "rev-parse", "HEAD")
    journey = carry.set_out(scratch.lab, "up", new, scratch.bench())
    repin = carry.carried(journey)
    journey.books *= 2
    return repin, *raise_alarm(journey, repin, scratch.bench(mirror=mirror))


def test_the_name_is_told_with_its_pages_and_its_sentence_is_first(scratch: Scratch) -> None:
    repin, (only,), why = raised(scratch)
    page = "experiments/01-scratch/note.md"
    named = [ChangedName(name, "appeared", [page]) for name in ("rollback", "undo")]
    assert (repin.names, why) == (named, "")
    assert (only.why, only.names) == (Why.NAMED, ["rollback", "undo"])
    # Each once, though two labs own the page; the claim by its words.
    assert [one.text for one in only.sentences[1:]] == ["1. `undo` exists."]
    assert only.claims == ["claim-1"]
    assert [one.alarm for one in repin.citations] == [1, None]


def test_without_a_clone_it_says_so_and_goes_by_the_lines(scratch: Scratch) -> None:
    repin, (only,), why = raised(scratch, mirror=False)
    assert "no clone" in why
    assert repin.names == []
    assert (only.why, only.names) == (Why.LEFT, ["uses"])
