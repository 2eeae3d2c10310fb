"""A shallow clone lacks commits that its repository has: that is said, and never "no commit"."""

import shutil
from pathlib import Path

import pytest

from tests.notelab.scratch import Scratch, commit_all, git

DEEPEN = ("`git fetch --unshallow`", "`fetch-depth: 0`")
OWN = """\
[lab]
title = "Own"

[sources.up]
path = "."
pin = "up-sha.txt"

[notes."note.md"]
sources = ["up"]
"""


def make_shallow(folder: Path) -> None:
    """Replace a repository by a clone of its last commit alone."""
    whole = folder.with_name("whole")
    folder.rename(whole)
    git(whole, "commit", "-q", "--allow-empty", "-m", "another commit")
    git(folder.parent, "clone", "-q", "--depth", "1", whole.as_uri(), str(folder))


@pytest.fixture
def own_book(scratch: Scratch) -> Scratch:
    """Return a lab that cites the repository that it is in, at a commit before the last."""
    shutil.copytree(scratch.upstream / "pkg", scratch.book / "pkg")
    git(scratch.book, "add", "pkg")
    git(scratch.book, "commit", "-q", "-m", "code")
    commit = git(scratch.book, "rev-parse", "HEAD")
    git(scratch.book, "tag", "v1")
    scratch.write("lab.toml", OWN)
    scratch.write("up-sha.txt", f"{commit}\n")
    text = scratch.read("note.md").replace(scratch.commit[:12], commit[:12])
    scratch.write("note.md", text)
    scratch.lock()
    commit_all(scratch.book, "note")
    scratch.commit = commit
    return scratch


def test_a_shallow_workbook_is_checked_by_its_lock_and_told_so(own_book: Scratch) -> None:
    make_shallow(own_book.book)
    shutil.rmtree(own_book.root / "cache")
    done = own_book.run("check", "-v")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 checked against the lock only" in done.stdout
    assert "shallow clone" in done.stdout
    assert all(deepen in done.stdout for deepen in DEEPEN)


def test_a_shallow_workbook_without_a_lock_says_how_to_deepen_it(own_book: Scratch) -> None:
    own_book.lab.joinpath("citations.lock").unlink()
    git(own_book.book, "commit", "-q", "-a", "-m", "no lock")
    make_shallow(own_book.book)
    shutil.rmtree(own_book.root / "cache")
    findings = own_book.check(mirror=False).findings
    assert {finding.code for finding in findings} == {"N213"}
    reasons = next(finding.found for finding in findings if finding.code == "N213")
    assert all(deepen in reasons for deepen in DEEPEN)


def test_a_tag_that_a_shallow_workbook_lacks_is_not_called_unknown_alone(own_book: Scratch) -> None:
    make_shallow(own_book.book)
    done = own_book.run("pin", "up", "v1")
    assert done.returncode == 2
    assert "shallow clone" in done.stderr and DEEPEN[0] in done.stderr


def test_a_shallow_mirror_does_not_make_the_pin_unknown(scratch: Scratch) -> None:
    make_shallow(scratch.upstream)
    shutil.rmtree(scratch.root / "cache")
    report = scratch.check()
    assert report.findings == []
    assert [note.locked for note in report.notes] == [2, 2]
    (source,) = report.labs[0].sources
    assert any("shallow clone" in reason for reason in source.reasons)


def test_a_whole_workbook_without_the_commit_is_still_no_source_of_it(own_book: Scratch) -> None:
    own_book.write("up-sha.txt", "1" * 40 + "\n")
    assert "N122" in own_book.codes(mirror=False)
