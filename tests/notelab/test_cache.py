"""What is remembered is what was put, made by this code, or nothing: never a damaged answer."""

import json
import shutil
from pathlib import Path

import pytest

from notelab import cache
from notelab.cache import CacheFile, DiskCache
from notelab.rules import ranges
from notelab.rules.citations import Judge
from tests.notelab.scratch import Scratch, check_lab


def filled_cache_file(file: Path) -> CacheFile:
    cache_file = CacheFile(file)
    cache_file.put("note", "a", b"one")
    cache_file.put("note", "b", b"two")
    cache_file.save()
    return CacheFile(file)


def test_a_cache_file_returns_what_was_put_and_keeps_it_with_new_entries(tmp_path: Path) -> None:
    cache_file = filled_cache_file(tmp_path / "deep" / "s")
    cache_file.put("note", "c", b"")
    cache_file.save()
    assert cache_file.get("note", "a") == b"one"
    again = CacheFile(tmp_path / "deep" / "s")
    assert [again.get("note", key) for key in "abcd"] == [b"one", b"two", b"", None]
    assert again.get("diagram", "a") is None


def test_a_damaged_cache_file_returns_sound_entries_or_nothing(tmp_path: Path) -> None:
    file = tmp_path / "s"
    filled_cache_file(file)
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert CacheFile(file).get("note", "a") in (b"one", None)
        file.write_bytes(whole[:at])
        assert CacheFile(file).get("note", "b") is None


def test_a_cache_of_other_code_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled_cache_file(tmp_path / "s")
    monkeypatch.setattr(cache, "code_version", lambda: "another")
    assert CacheFile(tmp_path / "s").get("note", "a") is None


@pytest.mark.parametrize("module", ["page/citation_syntax", "page/results_page", "cited/python"])
def test_the_code_version_depends_on_the_code_that_reads_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    here = tmp_path / "notelab"
    shutil.copytree(cache._HERE, here, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(cache, "_HERE", here)
    version = cache.code_version.__wrapped__
    before = version()
    with (here / f"{module}.py").open("a") as file:
        file.write("# changed\n")
    assert version() != before


def test_a_large_cache_keeps_its_last_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_file = filled_cache_file(tmp_path / "s")
    monkeypatch.setattr(cache, "_MAX_BYTES", 1)
    cache_file.get("note", "b")
    cache_file.put("note", "c", b"three")
    cache_file.save()
    again = CacheFile(tmp_path / "s")
    assert [again.get("note", key) for key in "abc"] == [None, b"two", b"three"]


def test_a_fit_is_cached_and_no_misfit(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch.lock()
    assert scratch.codes() == []
    judged: list[str] = []
    findings = ranges.findings
    monkeypatch.setattr(
        ranges, "findings", lambda c, f: judged.append(c.citation.text) or findings(c, f)
    )
    assert scratch.codes() == []
    assert judged == []
    cache_file = scratch.bench().cache.file_for(scratch.book)
    assert any(name.startswith("fits ") for name in cache_file._index)


def test_a_cached_verdict_has_all_inputs(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scratch.codes() == []
    judged: list[str] = []
    verdict = Judge._judge_citation
    monkeypatch.setattr(
        Judge, "_judge_citation", lambda s, c: judged.append(c.citation.text) or verdict(s, c)
    )
    with monkeypatch.context() as patch:  # nor is lab.toml parsed again
        patch.setattr("msgspec.toml.decode", lambda *_, **__: pytest.fail("parsed again"))
        assert [note.proved for note in scratch.check().notes] == [2, 2]
    assert judged == []
    lock = scratch.read("citations.lock")
    digest = json.loads(lock)["citations"]["up"]["pkg/scaler.py:L22-L25"]["sha256"]
    for name, old, new, code in (
        ("citations.lock", digest, "0" * 64, "N211"),
        ("citations.lock", '"note.md": 1', '"note.md": 0', "N210"),
        ("lab.toml", "max-words", "max-lines = 3\nmax-words", "N206"),
    ):
        whole = scratch.read(name)
        scratch.replace(name, old, new)
        assert code in scratch.codes(), (name, new)
        scratch.write(name, whole)
    shutil.rmtree(scratch.root / "cache" / "blobs")
    assert [(note.proved, note.locked) for note in scratch.check(mirror=False).notes] == [
        (0, 2)
    ] * 2


def test_an_unwritable_cache_folder_fails_no_check(scratch: Scratch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    bench = scratch.bench()
    bench.cache = DiskCache(tmp_path / "file")
    assert check_lab(scratch.lab, bench).labs
