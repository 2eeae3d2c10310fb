"""A name counts as vanished or appeared only if the whole tree says so."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from notelab.book.workbook import CheckSession
from notelab.cache import DiskCache
from notelab.repin.names import compare_in_clone, compare_in_packages, compare_names
from notelab.sources.answers import Source, SourceError
from notelab.sources.git.git_command import GitCommand
from notelab.sources.library import Library
from notelab.sources.package import Package
from notelab.sources.store import Store
from tests.notelab.scratch import commit_all, git

OLD = {
    "a.py": "def leaving(): pass\ndef wandering(): pass\n",
    "b.py": "longer_staying = 1\n",
    "same.py": "resident = 'alias'\n",
}
NEW = {
    "a.py": "def arriving(): pass\nresident = 2\n",
    "c/b.py": "def wandering(): staying()\n",
    "same.py": "resident = 'alias'\n",
}
NAMES = ["leaving", "wandering", "arriving", "resident", "staying", "alias", "never"]


def commit(folder: Path, files: Mapping[str, str]) -> str:
    """Commit exactly these files."""
    for old in folder.rglob("*.py"):
        old.unlink()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return commit_all(folder, "a tree")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


class Release(Package):
    """A wheel of files, which knows what was read of it."""

    def __init__(self, files: Mapping[str, str]) -> None:
        record = "".join(f"{name},{hash(text)},\n" for name, text in files.items())
        super().__init__("a wheel", record)
        self.files, self.names_read = files, set[str]()

    def read(self, name: str) -> bytes:
        self.names_read.add(name)
        return self.files[name].encode()


def bench(folder: Path, mirrors: dict[str, Path]) -> CheckSession:
    return CheckSession(DiskCache(folder / "memo"), Library(Store(folder), mirrors, offline=True))


def test_a_name_that_only_one_tree_has_as_a_whole_word_is_listed(clone: Path) -> None:
    old, new = commit(clone, OLD), commit(clone, NEW)
    changes = compare_in_clone(GitCommand(clone / ".git"), old, new, NAMES)
    back = compare_in_clone(GitCommand(clone / ".git"), new, old, NAMES)
    assert changes.vanished == back.appeared == {"leaving"}
    assert changes.appeared == back.vanished == {"arriving", "staying"}


def test_many_names_are_compared_as_a_few_are(clone: Path) -> None:
    many = [f"name_{number}" for number in range(60)]
    files = {"all.py": "\n".join(many), "some.py": "\n".join(many[:50])}
    old = commit(clone, files)
    new = commit(clone, {"some.py": files["some.py"]})
    changes = compare_in_clone(GitCommand(clone / ".git"), old, new, many)
    assert changes.vanished == set(many[50:]) and not changes.appeared


def test_two_wheels_give_the_changes_of_two_commits_of_a_clone() -> None:
    changes = compare_in_packages(Release(OLD), Release(NEW), NAMES)
    assert changes.vanished == {"leaving"}
    assert changes.appeared == {"arriving", "staying"}


def test_a_file_that_is_alike_in_both_wheels_is_read_once_at_most() -> None:
    old, new = Release(OLD), Release(NEW)
    compare_in_packages(old, new, NAMES)
    assert "same.py" not in new.names_read


def test_a_binary_of_a_wheel_is_not_read() -> None:
    old, new = Release({"lib.so": "leaving"}), Release({"lib.so": "arriving"})
    assert compare_in_packages(old, new, NAMES).vanished == set()
    assert not old.names_read | new.names_read


def test_a_commit_that_the_clone_lacks_is_refused(clone: Path) -> None:
    old = commit(clone, OLD)
    with pytest.raises(SourceError, match="can't be compared"):
        compare_in_clone(GitCommand(clone / ".git"), old, "0" * 40, NAMES)


def test_a_clone_without_its_files_is_refused_and_not_believed(clone: Path, tmp_path: Path) -> None:
    old, new = commit(clone, OLD), commit(clone, NEW)
    git(clone, "config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "partial.git"
    git(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", clone.as_uri(), str(partial))
    with pytest.raises(SourceError, match="doesn't hold every file"):
        compare_in_clone(GitCommand(partial), old, new, NAMES)


def test_a_damaged_clone_is_refused_and_not_believed(clone: Path) -> None:
    old, new = commit(clone, OLD), commit(clone, NEW)
    blob = git(clone, "rev-parse", f"{old}:b.py")
    (clone / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(SourceError, match=f"it lacks object {blob[:12]}"):
        compare_in_clone(GitCommand(clone / ".git"), old, new, NAMES)


def test_the_changes_between_two_commits_are_cached(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = commit(clone, OLD), commit(clone, NEW)
    old, new = (Source("up", "", commit_id) for commit_id in commits)
    first = compare_names(bench(tmp_path, {"up": clone}), old, new, NAMES)
    clone.joinpath(".git/objects").rename(tmp_path / "nothing is left to ask")
    clone.joinpath(".git/objects").mkdir()
    assert compare_names(bench(tmp_path, {"up": clone}), old, new, NAMES[::-1]) == first
    with pytest.raises(SourceError):
        compare_names(bench(tmp_path, {"up": clone}), old, new, ["another"])
    monkeypatch.setattr("notelab.repin.names.code_version", lambda folder: f"another {folder}")
    with pytest.raises(SourceError):  # by other code it is
        compare_names(bench(tmp_path, {"up": clone}), old, new, NAMES)


def test_without_clone_and_wheels_it_says_what_would_do(tmp_path: Path) -> None:
    source = Source("up", "https://example.invalid/up.git", "0" * 40)
    with pytest.raises(SourceError, match="no clone") as refused:
        compare_names(bench(tmp_path, {}), source, source, NAMES)
    assert "--mirror up=DIR" in str(refused.value.hint)


@pytest.mark.may_skip
@pytest.mark.skipif(
    "SHARDBOOK_MIRROR_MEGATRON" not in os.environ,
    reason="SHARDBOOK_MIRROR_MEGATRON names no clone of Megatron-LM",
)
def test_claim_31_turns_over_with_core_v0_18_and_not_before(tmp_path: Path) -> None:
    real = bench(tmp_path, {"megatron": Path(os.environ["SHARDBOOK_MIRROR_MEGATRON"])})
    pin = Source("megatron", "", "55ac7082517c3878ae653c07c09c534b8aed49f6")
    claimed = {"dp_cp_ag_group", "expt_dp_ag_group", "for_expert_parallelism"}
    for release, appeared in (("core_v0.17.1", set()), ("core_v0.18.0", claimed)):
        carried = Source("megatron", "", real.library.resolve(pin, release))
        changes = compare_names(real, pin, carried, [*claimed, "create_all_gather_group"])
        assert changes.appeared == appeared
        assert not changes.vanished
