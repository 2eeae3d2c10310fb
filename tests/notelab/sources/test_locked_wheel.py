"""A wheel is pinned as a commit is: what another index says of it proves nothing."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from notelab.book.relock import RelockResult, relock
from notelab.book.workbook import CheckSession, open_lab
from notelab.cache import DiskCache
from notelab.errors import NotelabError
from notelab.lab import lock as lock_file
from notelab.lab.lock import Lock, LockedSource
from notelab.report import formats
from notelab.sources.answers import FoundFile, Source, SourceError, Wheel
from notelab.sources.git.fetch import HostProbe
from notelab.sources.library import Library
from notelab.sources.store import Store, blob_id
from tests.notelab.scratch import UPSTREAM, Scratch, check_lab
from tests.notelab.sources.package_index import NAME, VERSION, WHEEL, Index, make_wheel, serving
from tests.notelab.sources.upstream import reasons

COMMIT = "1" * 40
DATA, FORGED = b"def one():\n    return 1\n", b"def one():\n    return 666\n"
PATH = "trial/one.py"
VERSION_FILE = {"trial/version.py": f"git_version = {COMMIT!r}\n".encode()}
REQUIREMENT = f"{NAME}=={VERSION}"
SOURCE = Source("up", "https://git-host.invalid/up.git", COMMIT, wheel=REQUIREMENT)
OTHERS = "shardbook_trial-1.0-cp310-cp310-manylinux_2_28_x86_64.whl"


@pytest.fixture(autouse=True)
def _no_git_host(pip_of_its_own: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def reach(_probe: HostProbe, _url: str) -> None:
        raise SourceError("git-host.invalid can't be reached")

    monkeypatch.setattr(HostProbe, "check", reach)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with serving() as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        yield running


def _wheel(folder: Path, data: bytes, name: str = WHEEL) -> bytes:
    files = {PATH: data, **VERSION_FILE}
    return make_wheel(folder, files, filler=10, name=name).read_bytes()


@pytest.fixture
def genuine(tmp_path: Path, index: Index) -> Source:
    """Return the source with the wheel that the index has now, as a lock would know it."""
    index.files[WHEEL] = _wheel(tmp_path, DATA)
    locked_wheel = Library(Store(tmp_path / "first"), {}).wheel(SOURCE)
    assert locked_wheel is not None
    assert locked_wheel.sha256 == hashlib.sha256(index.files[WHEEL]).hexdigest()
    return Source("up", SOURCE.url, COMMIT, wheel=REQUIREMENT, known_wheel=locked_wheel)


def _read(tmp_path: Path, source: Source, blob: str | None = None) -> object:
    return Library(Store(tmp_path / "cache"), {}).read(source, {PATH: blob})[PATH]


def test_the_locked_wheel_proves_a_file_never_seen(tmp_path: Path, genuine: Source) -> None:
    answer = _read(tmp_path, genuine)
    assert isinstance(answer, FoundFile)
    assert answer.proof == "wheel"


def test_a_forged_wheel_is_refused_by_hash(tmp_path: Path, genuine: Source, index: Index) -> None:
    index.files[WHEEL] = _wheel(tmp_path, FORGED)
    # without a lock it would be believed
    assert isinstance(_read(tmp_path / "believing", SOURCE), FoundFile)
    for blob in (None, blob_id(FORGED), blob_id(DATA)):
        assert genuine.known_wheel is not None
        forged, locked = hashlib.sha256(index.files[WHEEL]).hexdigest(), genuine.known_wheel.sha256
        reason = reasons(_read(tmp_path, genuine, blob))[-1]
        assert f"gives sha256 {forged}, the lock has {locked}" in reason


@pytest.mark.parametrize("claimed", ["the lock's", ""])
def test_a_forged_wheel_under_the_right_hash_is_told_by_its_record(
    tmp_path: Path, genuine: Source, index: Index, claimed: str
) -> None:
    assert genuine.known_wheel is not None
    index.files[WHEEL] = _wheel(tmp_path, FORGED)
    index.hashes[WHEEL] = genuine.known_wheel.sha256 if claimed else ""
    answer = _read(tmp_path, genuine)
    assert f"the lock knows {genuine.known_wheel.record}" in reasons(answer)[-1]


def test_a_file_unlike_its_record_is_refused(tmp_path: Path, genuine: Source, index: Index) -> None:
    # Stored members of one length: the archive is sound, only the file's bytes are others.
    forged = io.BytesIO()
    whole = zipfile.ZipFile(io.BytesIO(index.files[WHEEL]))
    with zipfile.ZipFile(forged, "w") as archive:
        for name in whole.namelist():
            archive.writestr(name, FORGED if name == PATH else whole.read(name))
    assert genuine.known_wheel is not None
    index.files[WHEEL] = forged.getvalue()
    index.hashes[WHEEL] = genuine.known_wheel.sha256
    answer = _read(tmp_path, genuine)
    assert "doesn't match its hash in RECORD" in reasons(answer)[-1]


def test_another_platforms_wheel_delivers_known_files_and_proves_no_new_one(
    tmp_path: Path, genuine: Source, index: Index
) -> None:
    index.files = {OTHERS: _wheel(tmp_path, DATA, OTHERS)}
    assert isinstance(_read(tmp_path, genuine, blob_id(DATA)), FoundFile)
    answer = _read(tmp_path, genuine)
    assert f"{OTHERS} is not {WHEEL}, which the lock knows" in reasons(answer)[-1]


def test_another_machine_asks_for_the_locked_wheel(
    tmp_path: Path, genuine: Source, index: Index
) -> None:
    index.files[OTHERS] = _wheel(tmp_path, FORGED, OTHERS)
    index.files = {OTHERS: index.files[OTHERS], WHEEL: index.files[WHEEL]}
    assert isinstance(_read(tmp_path, genuine), FoundFile)
    assert index.asked_for(f"/files/{OTHERS}") == 0


def test_an_index_without_a_hash_is_named(tmp_path: Path, genuine: Source, index: Index) -> None:
    index.hashes[WHEEL] = ""
    reports: list[str] = []
    library = Library(Store(tmp_path / "cache"), {}, progress=reports.append)
    assert isinstance(library.read(genuine, {PATH: None})[PATH], FoundFile)
    assert reports[-1:] == [f"the index gives no hash for {WHEEL}: only its RECORD was compared"]


def test_a_wheel_on_disk_is_hashed(
    tmp_path: Path, genuine: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wheel = Library(Store(tmp_path / "cache"), {}).wheel(SOURCE)
    assert wheel == genuine.known_wheel


# Of the lock itself.


@pytest.fixture
def published(scratch: Scratch, index: Index) -> Scratch:
    """Return the scratch lab with a wheel, on the index, that holds what it cites."""
    scratch.replace(
        "lab.toml", 'pin = "up-sha.txt"', f'pin = "up-sha.txt"\nwheel = "{REQUIREMENT}"'
    )
    wheel = make_wheel(scratch.root, {"pkg/scaler.py": UPSTREAM.encode()}, filler=10)
    index.files[WHEEL] = wheel.read_bytes()
    return scratch


def _bench(scratch: Scratch, *, cache: str = "cache", mirror: bool = True) -> CheckSession:
    root = scratch.root / cache
    mirrors = {"up": scratch.upstream} if mirror else {}
    return CheckSession(DiskCache(root / "memo"), Library(Store(root), mirrors))


def _lock(scratch: Scratch, bench: CheckSession, lab: Path | None = None) -> RelockResult:
    relocked = relock(open_lab(lab or scratch.lab, bench))
    ((lab or scratch.lab) / "citations.lock").write_text(lock_file.dump(relocked.lock))
    return relocked


def test_locking_records_the_wheel_and_keeps_it_later(published: Scratch, index: Index) -> None:
    relocked = _lock(published, _bench(published))
    wheel = relocked.lock.sources["up"].wheel
    assert wheel is not None
    assert (wheel.file, wheel.sha256) == (WHEEL, hashlib.sha256(index.files[WHEEL]).hexdigest())
    assert json.loads(published.read("citations.lock"))["version"] == 2
    index.status = 500
    again = _lock(published, _bench(published, cache="other", mirror=False))
    assert again.lock == relocked.lock
    assert again.remarks == []


def test_a_wheel_that_cannot_be_recorded_is_only_told(published: Scratch, index: Index) -> None:
    index.status = 500
    relocked = _lock(published, _bench(published))
    assert relocked.skipped == []
    assert relocked.lock.sources["up"].wheel is None
    (remark,) = relocked.remarks
    assert f"the wheel {REQUIREMENT} is not recorded" in remark
    assert "answers 500" in remark


def test_a_lock_of_version_1_is_read_and_written_anew(published: Scratch) -> None:
    before = json.loads(published.read("citations.lock"))
    before["version"] = 1
    published.write("citations.lock", json.dumps(before))
    assert published.codes() == []
    relocked = _lock(published, _bench(published))
    assert relocked.lock.version == 2
    assert relocked.lock.sources["up"].wheel is not None


def test_a_wheel_of_another_version_or_commit_is_none_of_the_lock() -> None:
    wheel = Wheel("Shardbook.Trial-1.0+cpu-py3-none-any.whl", "2" * 64)
    lock = Lock(sources={"up": LockedSource(COMMIT, {}, wheel)})
    assert lock.wheel("up", COMMIT, "shardbook-trial==1.0") == wheel
    assert lock.wheel("up", COMMIT, "shardbook-trial==1.0.0") == wheel
    assert lock.wheel("up", COMMIT, "shardbook-trial==1.0+cpu") == wheel
    assert lock.wheel("up", COMMIT, "shardbook-trial==1.0.1") is None
    assert lock.wheel("up", COMMIT, "shardbook==1.0") is None
    assert lock.wheel("up", "2" * 40, "shardbook-trial==1.0") is None


@pytest.mark.parametrize(
    ("wheel", "message"),
    [
        ({"file": "../x.whl", "record": "1" * 64}, "no wheel's file name"),
        ({"file": WHEEL, "record": "1" * 63}, "no sha256"),
        ({"file": WHEEL, "record": "1" * 64, "sha256": "x"}, "no sha256"),
        ({"file": WHEEL}, "not a lock file"),
    ],
)
def test_a_false_locked_wheel_is_refused(
    scratch: Scratch, wheel: dict[str, str], message: str
) -> None:
    data = json.loads(scratch.read("citations.lock"))
    data["sources"]["up"]["wheel"] = wheel
    scratch.write("citations.lock", json.dumps(data))
    with pytest.raises(NotelabError, match=message):
        scratch.check()


# A sibling's word.


@pytest.fixture
def sibling_lab(published: Scratch) -> Path:
    """Return a new lab in the same repository, with the same pin and no lock."""
    _lock(published, _bench(published))
    folder = published.book / "experiments/02-mine"
    folder.mkdir()
    for name in ("lab.toml", "up-sha.txt", "note.md", "note.es.md"):
        (folder / name).write_text(published.read(name), "utf-8")
    return folder


def test_a_siblings_lock_vouches_without_a_git_host(published: Scratch, sibling_lab: Path) -> None:
    bench = _bench(published, cache="mine", mirror=False)
    relocked = _lock(published, bench, sibling_lab)
    assert relocked.skipped == []
    (remark,) = relocked.remarks
    assert remark.startswith("up: 1 file vouched for by ")
    assert remark.endswith("01-scratch/citations.lock")
    sibling_lock = lock_file.load(published.lab / "citations.lock")
    assert sibling_lock is not None
    assert relocked.lock.sources == sibling_lock.sources
    assert relocked.lock.sources["up"].files["pkg/scaler.py"].proof == "git"


def test_a_check_says_who_vouched_until_it_is_locked(published: Scratch, sibling_lab: Path) -> None:
    before, after = "", ""
    for _ in range(2):
        bench = _bench(published, cache="mine", mirror=False)
        report = check_lab(sibling_lab, bench)
        before, after = after, formats.write(report, colour=False, detail="tables")
        _lock(published, bench, sibling_lab)
    assert "    1 file vouched for by " in before
    assert "vouched for by" not in after
    assert after.endswith("0 findings\n")


def test_no_sibling_vouches_for_another_source(published: Scratch, sibling_lab: Path) -> None:
    (published.lab / "up-sha.txt").write_text("2" * 40 + "\n")  # its lock is out of date by now
    relocked = _lock(published, _bench(published, cache="a", mirror=False), sibling_lab)
    assert len(relocked.skipped) == 2
    (published.lab / "up-sha.txt").write_text(f"{published.commit}\n")
    lab_file = (sibling_lab / "lab.toml").read_text("utf-8")
    (sibling_lab / "lab.toml").write_text(lab_file.replace("/up.git", "/other.git"), "utf-8")
    relocked = _lock(published, _bench(published, cache="b", mirror=False), sibling_lab)
    assert len(relocked.skipped) == 2


def test_a_wrong_sibling_gives_way_to_the_commit(published: Scratch, sibling_lab: Path) -> None:
    right = published.read("citations.lock")
    wrong = right.replace(blob_id(UPSTREAM.encode()), "a" * 40)
    assert wrong != right
    published.write("citations.lock", wrong)
    relocked = _lock(published, _bench(published, cache="mine"), sibling_lab)
    assert relocked.skipped == []
    assert relocked.lock.sources["up"].files["pkg/scaler.py"].blob == blob_id(UPSTREAM.encode())
    assert relocked.remarks == []


def test_a_siblings_broken_lock_is_no_fault_here(published: Scratch, sibling_lab: Path) -> None:
    published.write("citations.lock", "<<<<<<< HEAD\n")
    relocked = _lock(published, _bench(published, cache="mine"), sibling_lab)
    assert relocked.skipped == []
