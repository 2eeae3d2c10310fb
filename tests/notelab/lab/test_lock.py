"""The lock: what it holds, how it is written, what it refuses, and that a stronger proof stays."""

import json

import pytest

from notelab.book.relock import relock
from notelab.book.workbook import open_lab
from notelab.errors import NotelabError
from notelab.lab import lock as lock_file
from notelab.lab.lock import Lock, LockedCitation, LockedFile, LockedSource
from tests.notelab.scratch import UPSTREAM, Scratch, check_lab


def test_the_lock_holds_hashes_symbols_and_anchors_and_no_source_text(scratch: Scratch) -> None:
    text = scratch.read("citations.lock")
    data = json.loads(text)
    entry = data["citations"]["up"]["pkg/scaler.py:L14-L15"]
    assert entry["symbol"] == "Scaler.apply"
    assert entry["anchors"] == ["uses"]
    assert data["sources"]["up"]["files"]["pkg/scaler.py"]["proof"] == "git"
    for line in UPSTREAM.split("\n"):
        if len(line.strip()) > 12:
            assert line.strip() not in text


def test_the_lock_has_one_citation_a_line_in_order_of_lines() -> None:
    entry = LockedCitation("0" * 64, "f", ["x"])
    lock = Lock(
        sources={"up": LockedSource("1" * 40, {"a.py": LockedFile("2" * 40, "git")})},
        citations={"up": dict.fromkeys(("a.py:L10", "a.py:L9-L12", "a.py:L9"), entry)},
    )
    lines = [line for line in lock_file.dump(lock).split("\n") if '"a.py:L' in line]
    assert [line.split('"')[1] for line in lines] == ["a.py:L9", "a.py:L9-L12", "a.py:L10"]


def test_what_is_dumped_is_loaded_back(scratch: Scratch) -> None:
    path = scratch.lab / "citations.lock"
    loaded = lock_file.load(path)
    assert loaded is not None
    assert lock_file.dump(loaded) == scratch.read("citations.lock")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a lock file"),
        ("{", "not a lock file"),
        ('{"version": 3}', "version 3"),
        ('{"version": 1, "sources": {"up": {"commit": 3}}}', "not a lock file"),
        ('{"version": 1, "surprise": {}}', "not a lock file"),
        ("<<<<<<< HEAD\n", "not a lock file"),
        (
            '{"version": 1, "sources": {"up": {"commit": "x", "files": '
            '{"a": {"blob": "../../etc", "proof": "git"}}}}}',
            "no blob",
        ),
        ("[" * 100_000, "not a lock file"),
    ],
)
def test_a_false_lock_is_refused_and_left_as_it_was(
    scratch: Scratch, text: str, message: str
) -> None:
    scratch.write("citations.lock", text)
    with pytest.raises(NotelabError, match=message):
        scratch.check()
    done = scratch.run("lock")
    assert done.returncode == 2
    assert done.stderr.startswith("error: experiments/01-scratch/citations.lock: ")
    assert scratch.read("citations.lock") == text


def test_relocking_without_a_source_keeps_the_entries_of_the_lock(scratch: Scratch) -> None:
    before = scratch.read("citations.lock")
    scratch.root.joinpath("cache").rename(scratch.root / "gone")
    relocked = relock(open_lab(scratch.lab, scratch.bench(mirror=False)))
    assert lock_file.dump(relocked.lock) == before
    assert relocked.skipped == []


def test_relocking_from_the_store_alone_never_weakens_a_proof(scratch: Scratch) -> None:
    before = scratch.read("citations.lock")
    relocked = relock(open_lab(scratch.lab, scratch.bench(mirror=False)))
    assert lock_file.dump(relocked.lock) == before


def test_the_lock_records_what_resolves_and_judges_nothing(scratch: Scratch) -> None:
    scratch.replace_both("L14-L15", "L15-L17")
    relocked = scratch.lock()
    assert "pkg/scaler.py:L15-L17" in relocked.lock.citations["up"]
    codes = {finding.code for finding in check_lab(scratch.lab, scratch.bench()).findings}
    assert codes == {"N208"}


def test_what_does_not_resolve_is_left_out_and_said(scratch: Scratch) -> None:
    scratch.replace("note.md", "pkg/scaler.py:L14-L15", "pkg/nothing.py:L1")
    done = scratch.run("lock")
    assert done.returncode == 1
    assert "not locked: `pkg/nothing.py:L1`" in done.stdout


def test_locking_twice_writes_the_same_bytes(scratch: Scratch) -> None:
    before = scratch.lab.joinpath("citations.lock").stat().st_mtime_ns
    done = scratch.run("lock")
    assert (done.returncode, "unchanged" in done.stdout) == (0, True)
    assert scratch.lab.joinpath("citations.lock").stat().st_mtime_ns == before


@pytest.mark.parametrize("pin", ["", "no commit\n", None])
def test_locking_without_a_usable_pin_forgets_nothing(scratch: Scratch, pin: str | None) -> None:
    before = scratch.read("citations.lock")
    place = scratch.lab / "up-sha.txt"
    place.unlink() if pin is None else place.write_text(pin)
    done = scratch.run("lock")
    assert done.returncode == 1 and "no source could be asked" in done.stdout
    assert scratch.read("citations.lock") == before


def test_a_page_that_cannot_be_read_is_said_not_to_be_locked(scratch: Scratch) -> None:
    scratch.lab.joinpath("note.es.md").write_bytes(b"\xe9\n")
    done = scratch.run("lock")
    message = (
        "not locked: experiments/01-scratch/note.es.md, which is not UTF-8: byte 0xe9 in line 1"
    )
    assert done.returncode == 1 and message in done.stdout
