"""A lab file that can't be used ends the command with one clear line and exit status 2."""

import os
from pathlib import Path

import pytest

from notelab.errors import NotelabError
from notelab.lab import lab
from tests.notelab.scratch import Scratch


def fault(scratch: Scratch) -> NotelabError:
    with pytest.raises(NotelabError) as caught:
        lab.load(scratch.lab)
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("max-words", "max-word", "unknown field `max-word`", "did you mean `max-words`?"),
        ("[sources.up]", "[source.up]", "unknown field `source`", "did you mean `sources`?"),
        ("title = ", "titel = ", "titel", "did you mean `title`?"),
        ("max-words = 120", 'max-words = "many"', "got `str`", ""),
        ("max-words = 120", "max-words = -1", ">= 1", ""),
        ("[10, 40]", "[40, 10]", "choice-words", ""),
        ('pin = "up-sha.txt"', 'pin = "../up-sha.txt"', "must name a file next to lab.toml", ""),
        ('sources = ["up"]', 'sources = ["pu"]', "names `pu`", "did you mean `up`?"),
        ('languages = ["en", "es"]', 'languages = ["english"]', "two-letter codes", ""),
        ('[notes."note.md"]', '[notes."../../../note.md"]', "leaves the repository", ""),
        ('[notes."note.md"]', '[notes."/etc/note.md"]', "relative to the lab", ""),
        ("[lab]", "[lab", "not valid TOML", ""),
        ('title = "Scratch"', 'title = "Scratch"\npages = ["../../../*.md"]', "leaves", ""),
        ('title = "Scratch"', 'title = "Scratch"\nmin-new-choices = 1', "needs lab.before", ""),
        ('title = "Scratch"', 'title = "Scratch"\nmin-new-choices = 1\nbefore = ["../../../*.md"]',
         "lab.before: '../../../*.md' leaves the repository", ""),
        ('title = "Scratch"', 'title = "Scratch"\nbefore = ["/etc/*.md"]', "relative globs", ""),
    ],
)  # fmt: skip
def test_a_slip_is_answered_with_its_key_and_the_nearest_spelling(
    scratch: Scratch, old: str, new: str, message: str, hint: str
) -> None:
    scratch.replace("lab.toml", old, new)
    done = scratch.run("check")
    assert done.returncode == 2, done
    assert message in done.stderr
    assert hint in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().split("\n")) <= 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("url", ["ext::sh -c true", "", "https://example.invalid/x y.git\n"])
def test_a_hostile_url_is_refused_before_anything_runs(scratch: Scratch, url: str) -> None:
    quoted = url.replace("\\", "\\\\").replace("\n", "\\n")
    scratch.replace("lab.toml", "https://example.invalid/up.git", quoted)
    assert "sources.up.url" in str(fault(scratch))


def test_the_mark_that_an_editor_puts_before_utf8_is_no_fault(scratch: Scratch) -> None:
    scratch.write("lab.toml", "\ufeff" + scratch.read("lab.toml"))
    assert scratch.codes() == []


def test_a_missing_lab_file_and_one_that_is_not_utf8_are_said(scratch: Scratch) -> None:
    scratch.lab.joinpath("lab.toml").write_bytes(b"\xff\xfe[lab]\n")
    assert "not valid TOML" in str(fault(scratch))
    scratch.lab.joinpath("lab.toml").unlink()
    assert "no such lab file" in str(fault(scratch))


def test_a_folder_deep_toml_ends_in_an_error_not_a_crash(scratch: Scratch) -> None:
    scratch.write("lab.toml", "a = " + "[" * 100_000)
    assert "not valid TOML" in str(fault(scratch))


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no symlinks on this platform")
def test_a_note_that_is_a_link_out_of_the_repository_is_refused(scratch: Scratch) -> None:
    outside = scratch.root / "outside.md"
    outside.write_text("# x\n")
    scratch.lab.joinpath("note.md").unlink()
    scratch.lab.joinpath("note.md").symlink_to(outside)
    assert "leaves the repository" in str(fault(scratch))


def test_another_lab_may_share_the_sources_and_their_pins(scratch: Scratch) -> None:
    second_lab = scratch.book / "experiments" / "02-other"
    second_lab.mkdir()
    (second_lab / "lab.toml").write_text(
        '[lab]\ntitle = "Other"\nsources-from = "../01-scratch"\n[notes."n.md"]\nsources = ["up"]\n'
    )
    loaded = lab.load(second_lab)
    assert loaded.pins_folder == scratch.lab.resolve()
    assert list(loaded.sources) == ["up"]


def test_sources_cannot_be_borrowed_from_a_lab_that_borrows(scratch: Scratch) -> None:
    text = '[lab]\ntitle = "Other"\nsources-from = "."\n'
    scratch.write("lab.toml", text)
    assert "sources-from" in str(fault(scratch))


def test_the_repository_root_is_where_git_is(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert lab.repository_root(inner) == inner
    (tmp_path / ".git").mkdir()
    assert lab.repository_root(inner) == tmp_path
