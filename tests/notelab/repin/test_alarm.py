"""A note that says a name does not exist is listed first once the name exists."""

from pathlib import Path

import pytest

from notelab.repin import migrate
from notelab.repin.changes import NameChange, RepinResult
from notelab.repin.review_order import ReviewItem, ReviewReason, build_review
from tests.notelab.scratch import UPSTREAM, Scratch, git

CLAIM = """
| no. | claim | evidence |
|---|---|---|
| <a id="claim-1"></a>1 | `undo` exists. | `uses` `pkg/scaler.py:L14-L15` |
"""


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    new_scratch = Scratch(tmp_path)
    new_scratch.replace("note.md", "so a failing call", "there is no `rollback`, so a failing call")
    new_scratch.write("note.md", new_scratch.read("note.md") + CLAIM)
    text = UPSTREAM.replace("self.uses += 1", "self.count()")
    new_scratch.upstream.joinpath("pkg/scaler.py").write_text(
        f"{text}\n\ndef rollback():\n    undo()\n"
    )
    git(new_scratch.upstream, "commit", "-q", "-a", "-m", "two")
    return new_scratch


def review(scratch: Scratch, *, mirror: bool = True) -> tuple[RepinResult, list[ReviewItem], str]:
    new = git(scratch.upstream, "rev-parse", "HEAD")
    migration = migrate.open_migration(scratch.lab, "up", new, scratch.bench())
    repin = migrate.classify_citations(migration)
    migration.books *= 2
    return repin, *build_review(migration, repin, scratch.bench(mirror=mirror))


def test_the_name_is_listed_with_its_pages_and_its_sentence_is_first(scratch: Scratch) -> None:
    repin, (only,), why = review(scratch)
    page = "experiments/01-scratch/note.md"
    name_changes = [NameChange(name, "appeared", [page]) for name in ("rollback", "undo")]
    assert (repin.names, why) == (name_changes, "")
    assert (only.reason, only.names) == (ReviewReason.NAME_CHANGED, ["rollback", "undo"])
    # Each once, though two labs own the page; the claim by its words.
    assert [item.text for item in only.sentences[1:]] == ["1. `undo` exists."]
    assert only.claims == ["claim-1"]
    assert [item.alarm for item in repin.citations] == [1, None]


def test_without_a_clone_it_says_so_and_goes_by_the_lines(scratch: Scratch) -> None:
    repin, (only,), why = review(scratch, mirror=False)
    assert "no clone" in why
    assert repin.names == []
    assert (only.reason, only.names) == (ReviewReason.NAME_LEFT, ["uses"])
