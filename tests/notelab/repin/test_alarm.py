"""A note that says a name does not exist is the first to be read when it comes to."""

from pathlib import Path

import pytest

from notelab.book.workbook import Bench, Workbook, open_lab
from notelab.memo import Memo
from notelab.repin.carried import Carried, ChangedName, Place, Repin
from notelab.repin.reading import Reread, Why, raise_alarm
from notelab.sources.answers import Source
from notelab.sources.library import Library
from notelab.sources.store import Store
from tests.notelab.scratch import UPSTREAM, Scratch, git

CLAIM = """
| no. | claim | evidence |
|---|---|---|
| <a id="claim-1"></a>1 | `undo` exists. | `uses` `pkg/scaler.py:L14-L15` |
"""
COUNTED, COMBINED = Place("pkg/scaler.py", 14, 15), Place("pkg/scaler.py", 22, 25)


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
    old = Source("up", "https://example.invalid/up.git", scratch.commit)
    new = Source("up", old.url, git(scratch.upstream, "rev-parse", "HEAD"))

    def lines(commit: str, place: Place) -> list[str]:
        text = git(scratch.upstream, "show", f"{commit}:{place.path}")
        return text.splitlines()[place.start - 1 : place.end]

    book: Workbook = open_lab(scratch.lab, scratch.bench())
    repin = Repin("up", old.commit, new.commit)
    repin.citations = [
        Carried(COMBINED, "same", new=COMBINED),
        Carried(COUNTED, "edited", proposals=[COUNTED]),
    ]
    mirrors = {"up": scratch.upstream} if mirror else {}
    reread, why = raise_alarm(
        repin,
        [book, book],
        Bench(Memo(None), Library(Store(scratch.root / "cache"), mirrors, offline=True)),
        (old, new),
        (lambda one: lines(old.commit, one), lambda one: lines(new.commit, one)),
    )
    return repin, reread, why


def test_the_name_is_told_with_its_pages_and_its_sentence_is_first(scratch: Scratch) -> None:
    repin, (only,), why = raised(scratch)
    page = "experiments/01-scratch/note.md"
    named = [ChangedName(name, "appeared", [page]) for name in ("rollback", "undo")]
    assert (repin.names, why) == (named, "")
    assert (only.why, only.names) == (Why.NAMED, ["rollback", "undo"])
    # Each once, though two labs own the page; the claim by its words.
    assert [one.text for one in only.sentences[1:]] == ["1. `undo` exists."]
    assert only.claims == ["claim-1"]
    assert [one.alarm for one in repin.citations] == [None, 1]


def test_without_a_clone_it_says_so_and_goes_by_the_lines(scratch: Scratch) -> None:
    repin, (only,), why = raised(scratch, mirror=False)
    assert "no clone" in why
    assert repin.names == []
    assert (only.why, only.names) == (Why.LEFT, ["uses"])
