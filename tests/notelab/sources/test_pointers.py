"""Where git holds a pointer in the place of a file, no line of it is proved."""

import pytest

from notelab.book.relock import relock
from notelab.book.workbook import open_lab
from notelab.lab import lock as lock_file
from notelab.sources.answers import pointer_kind
from tests.notelab.scratch import Scratch, git

LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 12345\n"
EXTENDED = LFS.replace("oid", f"ext-0-foo sha256:{'cd' * 32}\noid")
OLD = LFS.replace("https://git-lfs.github.com", "https://hawser.github.com")
ANNEX = "/annex/objects/SHA256E-s12345--abcdef.py\n"
POINTERS = {"Git LFS": [LFS, EXTENDED, OLD], "git-annex": [ANNEX]}
Pointers = pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind, texts in POINTERS.items() for text in texts]
)


def point(scratch: Scratch, text: str) -> None:
    """Cite a file whose text, at a new commit, is a pointer's."""
    scratch.upstream.joinpath("pkg/large.py").write_text(text)
    scratch.release({"`pkg/scaler.py:L22-L25`": "`sha256` `annex` `pkg/large.py:L1`"})
    scratch.lock()


@Pointers
def test_a_cited_pointer_is_a_finding_and_unlocked(scratch: Scratch, kind: str, text: str) -> None:
    point(scratch, text)
    findings = scratch.check().findings
    assert [finding.code for finding in findings] == ["N213", "N213"]
    assert all(f"{kind} pointer" in finding.message for finding in findings)
    assert [note.proved for note in scratch.check().notes] == [1, 1]
    assert "pkg/large.py" not in scratch.read("citations.lock")
    skipped = dict(relock(open_lab(scratch.lab, scratch.bench())).skipped)
    assert f"{kind} pointer" in skipped["pkg/large.py:L1"]


@Pointers
def test_a_locked_pointer_is_no_proof(scratch: Scratch, kind: str, text: str) -> None:
    point(scratch, text)
    lock = lock_file.load(scratch.lab / "citations.lock")
    assert lock
    blob = git(scratch.upstream, "rev-parse", "HEAD:pkg/large.py")
    lock.sources["up"].files["pkg/large.py"] = lock_file.LockedFile(blob, "git")
    scratch.write("citations.lock", lock_file.dump(lock))
    for mirror in (True, False):  # False: from the store
        findings = scratch.check(mirror=mirror).findings
        assert [finding.code for finding in findings] == ["N213", "N213"]


@Pointers
def test_commands_report_a_pointer(scratch: Scratch, kind: str, text: str) -> None:
    point(scratch, text)
    for command in (["show", "pkg/large.py:L1"], ["cite", "up", "pkg/large.py:f"], ["fetch"]):
        done = scratch.run(*command)
        assert done.returncode != 0
        assert f"{kind} pointer" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "", "version https://git-lfs.github.com/spec/v1\n", f"# {LFS}", LFS + "x = 1\n" * 200,
        "/annex",
    ],
)  # fmt: skip
def test_a_file_that_only_speaks_of_pointers_is_none(text: str) -> None:
    assert pointer_kind(text.encode()) == ""
