"""The library: the order of the providers, and that no answer is taken on trust."""

import sys
from pathlib import Path

import pytest

from notelab.sources.answers import Absent, FoundFile, Source, SourceError, Unreachable
from notelab.sources.library import Library
from notelab.sources.store import Store, blob_id
from tests.notelab.scratch import git
from tests.notelab.sources.upstream import ONE, folder, make_upstream, reasons, upstream
from tests.running import run_program

__all__ = ["folder", "upstream"]


def _blob_of(folder: Path, upstream: Source, path: str = ONE) -> str:
    return git(folder, "rev-parse", f"{upstream.commit}:{path}")


def test_the_store_is_asked_before_the_mirror_and_the_mirror_before_git(
    tmp_path: Path, folder: Path, upstream: Source
) -> None:
    wanted: dict[str, str | None] = {ONE: _blob_of(folder, upstream)}
    mirrored = Library(Store(tmp_path / "a"), {"up": folder})
    for provider in (f"mirror {folder}", "store"):
        answer = mirrored.read(upstream, wanted)[ONE]
        assert isinstance(answer, FoundFile)
        assert answer.provider == provider
    answer = Library(Store(tmp_path / "b"), {}).read(upstream, wanted)[ONE]
    assert isinstance(answer, FoundFile)
    assert answer.provider == "git"


def test_a_mirror_is_known_by_any_spelling(tmp_path: Path, folder: Path, upstream: Source) -> None:
    spelt = Source("Up_Stream", upstream.url, upstream.commit)
    library = Library(Store(tmp_path / "a"), {"up-stream": folder}, offline=True)
    assert isinstance(library.read(spelt, {ONE: None})[ONE], FoundFile)


def test_bytes_that_are_not_the_locks_are_skipped_and_both_ids_named(
    tmp_path: Path, folder: Path, upstream: Source
) -> None:
    library = Library(Store(tmp_path / "a"), {"up": folder}, offline=True)
    answer = library.read(upstream, {ONE: "b" * 40})[ONE]
    reason = next(reason for reason in reasons(answer) if reason.startswith("mirror"))
    assert "b" * 40 in reason and _blob_of(folder, upstream) in reason


def test_a_damaged_blob_is_fetched_again(tmp_path: Path, folder: Path, upstream: Source) -> None:
    library = Library(Store(tmp_path / "a"), {"up": folder})
    wanted: dict[str, str | None] = {ONE: _blob_of(folder, upstream)}
    library.read(upstream, wanted)
    (place,) = [path for path in (tmp_path / "a/blobs").rglob("*") if path.is_file()]
    place.write_bytes(b"damaged")
    answer = library.read(upstream, wanted)[ONE]
    assert isinstance(answer, FoundFile)
    assert blob_id(answer.data) == wanted[ONE]
    assert blob_id(place.read_bytes()) == wanted[ONE]


def test_a_mirror_that_lacks_the_commit_gives_way_to_git(tmp_path: Path, upstream: Source) -> None:
    mirror = tmp_path / "other"
    mirror.mkdir()
    git(mirror, "init", "-q")
    answer = Library(Store(tmp_path / "a"), {"up": mirror}).read(upstream, {ONE: None})[ONE]
    assert isinstance(answer, FoundFile)
    assert answer.provider == "git"


def test_offline_asks_no_remote_and_says_who_was_asked(tmp_path: Path, upstream: Source) -> None:
    library = Library(Store(tmp_path / "a"), {}, offline=True)
    answer = library.read(upstream, {ONE: None})[ONE]
    assert isinstance(answer, Unreachable)
    assert not (tmp_path / "a/git").exists()
    with pytest.raises(SourceError, match="offline"):
        library.resolve(upstream, "v1")


@pytest.mark.parametrize(
    "path",
    ["../x.py", "/etc/passwd", "a//b", "a/../b", "", ".git/config", "a\0b", "a\\b", "x" * 2000],
)
def test_a_path_that_leaves_the_repository_is_absent_and_never_asked_for(
    tmp_path: Path, folder: Path, upstream: Source, path: str
) -> None:
    library = Library(Store(tmp_path / "a"), {"up": folder})
    answer = library.read(upstream, {path: None})[path]
    assert isinstance(answer, Absent)
    assert answer.definite


@pytest.mark.parametrize("name", ["*.py", ":(glob)**", "-x", "pkg/deep/[o]ne.py", "ñ/ü.py", "pkg/"])
def test_a_path_is_never_taken_for_a_pattern_or_an_option(
    tmp_path: Path, folder: Path, upstream: Source, name: str
) -> None:
    answer = Library(Store(tmp_path / "a"), {"up": folder}).read(upstream, {name: None})[name]
    assert isinstance(answer, Absent)


@pytest.mark.parametrize("blob", ["../../etc/passwd", "", "A" * 40, "1" * 39])
def test_a_false_id_reaches_no_disk(
    tmp_path: Path, folder: Path, upstream: Source, blob: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("not ours")
    library = Library(Store(tmp_path / "a"), {"up": folder})
    for identity in (blob, f"..{victim}"):
        answer = library.read(upstream, {ONE: identity})[ONE]
        assert "is no id" in reasons(answer)[0]
    assert Store(tmp_path / "a").get(f"..{victim}") is None
    assert victim.exists()


@pytest.mark.parametrize("commit", ["", "HEAD", "--all", "1" * 39])
def test_a_pin_that_is_no_commit_asks_nobody(tmp_path: Path, folder: Path, commit: str) -> None:
    make_upstream(folder)
    source = Source("up", folder.as_uri(), commit)
    answer = Library(Store(tmp_path / "a"), {"up": folder}).read(source, {ONE: None})[ONE]
    assert reasons(answer) == ["up has no usable pin"]


_FROM_STORE = """
import sys
from pathlib import Path
from notelab.sources.library import Library
from notelab.sources.answers import Source
from notelab.sources.store import Store
root, *blobs = sys.argv[1:]
library = Library(Store(Path(root)), {})
wanted = {f"f{number}.py": blob for number, blob in enumerate(blobs)}
found = library.read(Source("up", "https://h.invalid/x.git", "1" * 40), wanted)
print(len([one for one in found.values() if one.provider == "store"]))
print(sorted({"git", "requests", "remotezip", "platformdirs", "urllib3"} & set(sys.modules)))
"""


def test_a_read_from_the_store_imports_nothing_that_the_network_needs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    blobs = [store.put(b"%d\n" % number * 5000) for number in range(10)]
    ran = run_program([sys.executable, "-c", _FROM_STORE, str(tmp_path), *blobs], check=True)
    assert ran.stdout.split("\n")[:2] == ["10", "[]"]


@pytest.mark.parametrize("mirrored", [True, False])
def test_a_commit_that_nobody_has_is_told_from_one_that_nobody_was_asked_for(
    tmp_path: Path, folder: Path, upstream: Source, *, mirrored: bool
) -> None:
    library = Library(Store(tmp_path / "a"), {"up": folder} if mirrored else {}, offline=mirrored)
    never = Source("up", upstream.url, "1" * 40)
    library.read(never, {ONE: None})
    assert "has no commit 111111111111" in library.unknown_commit(never)
    library.read(upstream, {ONE: None})
    assert library.unknown_commit(upstream) == ""
    unasked = Source("up", "https://h.invalid/x.git", "2" * 40)
    alone = Library(Store(tmp_path / "b"), {}, offline=True)
    alone.read(unasked, {ONE: None})
    assert alone.unknown_commit(unasked) == ""


def test_a_mirror_that_is_behind_makes_no_pin_unknown(tmp_path: Path, upstream: Source) -> None:
    behind = tmp_path / "behind"
    behind.mkdir()
    git(behind, "init", "-q")
    library = Library(Store(tmp_path / "a"), {"up": behind})
    library.read(upstream, {ONE: None})
    assert library.unknown_commit(upstream) == ""
