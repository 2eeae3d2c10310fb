"""The git host and the package index: asked in order, and not again for some minutes."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from notelab.sources.answers import Absent, FoundFile, Offered, Source, SourceError, Unreachable
from notelab.sources.git.fetch import HostProbe, Remote
from notelab.sources.index import address
from notelab.sources.library import Library
from notelab.sources.store import MINUTES, Store, blob_id
from tests.notelab.sources.package_index import NAME, VERSION, WHEEL, Index, make_wheel, serving
from tests.notelab.sources.upstream import reasons

pytestmark = pytest.mark.usefixtures("pip_of_its_own")
LONG = 60  # seconds that a test waits for an event before it fails
COMMIT = "1" * 40
DATA, OTHER = b"def one():\n    return 1\n", b"def two():\n    return 2\n"
PATH, SECOND = "trial/one.py", "trial/two.py"
FILES = {PATH: DATA, SECOND: OTHER, "trial/version.py": f"git_version = {COMMIT!r}\n".encode()}
SOURCE = Source("up", "https://git-host.invalid/up.git", COMMIT, wheel=f"{NAME}=={VERSION}")


class Host:
    """A git host that is asked whether it is there, and is not."""

    def __init__(self) -> None:
        self.asked = 0

    def check(self) -> None:
        self.asked += 1
        raise SourceError("git-host.invalid can't be reached (no such host)")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    git_host = Host()
    monkeypatch.setattr(HostProbe, "check", lambda _probe, _url: git_host.check())
    return git_host


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with serving(make_wheel(tmp_path, FILES, filler=10)) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        yield running


def _library(tmp_path: Path, *, refresh: bool = False) -> Library:
    return Library(Store(tmp_path / "cache", refresh=refresh), {})


def _read(library: Library, path: str, blob: str | None) -> object:
    return library.read(SOURCE, {path: blob})[path]


def test_a_known_file_comes_out_of_the_wheel_and_the_git_host_is_not_asked(
    tmp_path: Path, host: Host, index: Index
) -> None:
    answer = _read(_library(tmp_path), PATH, blob_id(DATA))
    assert isinstance(answer, FoundFile)
    assert answer.provider == "wheel"
    assert host.asked == 0


@pytest.mark.parametrize(
    ("path", "data", "known", "fetched", "asked"),
    [
        ("setup.py", b"setup()\n", True, False, 1),  # the wheel lacks it
        (PATH, DATA, True, True, 0),
        (PATH, DATA, False, False, 0),
    ],
)
def test_git_hands_over_what_the_wheel_lacks_no_lock_knows_or_was_fetched(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch, path: str, data: bytes,
    known: bool, fetched: bool, asked: int,
) -> None:  # fmt: skip
    offered = {path: Offered(data, "git")}
    monkeypatch.setattr(Remote, "offer", lambda _remote, _source, _wanted: offered)
    if fetched:
        monkeypatch.setattr(Remote, "has", lambda _remote, _source: True)
    answer = _read(_library(tmp_path), path, blob_id(data) if known else None)
    assert isinstance(answer, FoundFile)
    assert (answer.provider, answer.proof) == ("git", "git")
    assert index.asked_for("/simple/") == asked


def test_a_file_that_nobody_knows_comes_out_of_a_wheel_that_names_the_pin_where_git_is_not(
    tmp_path: Path, host: Host, index: Index
) -> None:
    answer = _read(_library(tmp_path), PATH, None)
    assert isinstance(answer, FoundFile)
    assert (answer.provider, answer.proof) == ("wheel", "wheel")


def test_several_sources_are_asked_at_once_and_once(
    tmp_path: Path, host: Host, index: Index
) -> None:
    meeting = threading.Barrier(2)
    index.before_page = lambda: meeting.wait(LONG)
    second = Source("other", SOURCE.url, "2" * 40, wheel=SOURCE.wheel)
    library = _library(tmp_path)
    blobs = {PATH: blob_id(DATA), SECOND: blob_id(OTHER)}
    questions = [
        (source, {path: blob}) for source in (SOURCE, second) for path, blob in blobs.items()
    ]
    library.prefetch([(source, dict(wanted)) for source, wanted in questions])
    requests = len(index.requests)
    for source, wanted in questions:
        assert all(
            isinstance(answer, FoundFile) for answer in library.read(source, dict(wanted)).values()
        )
    assert len(index.requests) == requests
    assert index.asked_for("/simple/") == 2


def test_where_a_wheel_is_need_not_be_asked_again(tmp_path: Path, host: Host, index: Index) -> None:
    for path, data in ((PATH, DATA), (SECOND, OTHER)):
        assert isinstance(_read(_library(tmp_path), path, blob_id(data)), FoundFile)
    assert index.asked_for("/simple/") == 1


def test_a_wheel_that_moved_is_looked_for_again(tmp_path: Path, host: Host, index: Index) -> None:
    _read(_library(tmp_path), PATH, blob_id(DATA))
    index.files["moved/" + WHEEL] = index.files.pop(WHEEL)
    index.page = f"<a href='/files/moved/{WHEEL}'>{WHEEL}</a>".encode()
    assert isinstance(_read(_library(tmp_path), SECOND, blob_id(OTHER)), FoundFile)
    assert index.asked_for("/simple/") == 2


def test_an_address_with_a_secret_is_not_kept(tmp_path: Path, host: Host, index: Index) -> None:
    index.files[f"{WHEEL}?token=s3cret"] = index.files[WHEEL]
    index.page = f"<a href='/files/{WHEEL}?token=s3cret'>{WHEEL}</a>".encode()
    assert isinstance(_read(_library(tmp_path), PATH, blob_id(DATA)), FoundFile)
    cached = [path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert cached
    assert not [path for path in cached if b"s3cret" in path]


def test_a_file_that_the_wheel_lacks_asks_nobody_again(
    tmp_path: Path, host: Host, index: Index
) -> None:
    for path in ("trial/three.py", "trial/four.py"):
        answer = _read(_library(tmp_path), path, "a" * 40)
        assert any("holds no such file" in reason for reason in reasons(answer))
    before, requests = len(index.requests), host.asked
    answer = _read(_library(tmp_path), "trial/ones.py", None)
    assert isinstance(answer, Absent) and not answer.definite
    assert PATH in answer.suggestions
    assert (len(index.requests), host.asked) == (before, requests) == (before, 1)


@pytest.mark.parametrize("fault", ["no wheel", "no index", "no answer"])
def test_a_no_is_kept_for_some_minutes_and_says_how_to_ask_again(
    tmp_path: Path, host: Host, index: Index, fault: str
) -> None:
    if fault == "no wheel":
        index.page = b"<a href='x'>x</a>"
    elif fault == "no index":
        index.status = 500
    else:
        index.ranges = False
    first = _read(_library(tmp_path), PATH, blob_id(DATA))
    assert isinstance(first, Unreachable)
    before = len(index.requests)
    again = _read(_library(tmp_path), PATH, blob_id(DATA))
    assert isinstance(again, Unreachable)
    assert (len(index.requests), host.asked) == (before, 1)
    assert [
        reason.count("asked just now, `shardbook fetch` asks again")
        for reason in again.reasons
        if "installed" not in reason
    ] == [1, 1]
    index.page, index.status, index.ranges = None, 0, True
    assert isinstance(_read(_library(tmp_path, refresh=True), PATH, blob_id(DATA)), FoundFile)
    # and what was answered then counts from now on
    assert isinstance(_read(_library(tmp_path), SECOND, blob_id(OTHER)), FoundFile)


def test_a_server_that_never_ends_its_answer_is_given_up(
    tmp_path: Path, host: Host, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()
    index.before_page = lambda: never.wait(LONG)
    monkeypatch.setattr(address, "_SECONDS", 0.01)
    try:
        answer = _read(_library(tmp_path), PATH, blob_id(DATA))
    finally:
        never.set()
    assert "gave no complete answer" in reasons(answer)[-1]


def test_damaged_answers_are_asked_for_again(tmp_path: Path, host: Host, index: Index) -> None:
    _read(_library(tmp_path), PATH, blob_id(DATA))
    damaged = [path for path in (tmp_path / "cache/answers").rglob("*") if path.is_file()]
    assert damaged
    for path in damaged:
        path.write_bytes(b"\0damaged")
    assert isinstance(_read(_library(tmp_path), SECOND, blob_id(OTHER)), FoundFile)


def test_where_nothing_is_kept_all_is_asked(tmp_path: Path, host: Host, index: Index) -> None:
    (tmp_path / "cache").write_text("a file, no folder")
    reports: list[str] = []
    library = Library(Store(tmp_path / "cache"), {}, progress=reports.append)
    assert isinstance(_read(library, PATH, blob_id(DATA)), FoundFile)
    assert isinstance(_read(library, "trial/three.py", "a" * 40), Unreachable)
    assert sum("cannot be written" in line for line in reports) == 1


def test_a_no_counts_for_some_minutes_and_never_from_the_future(tmp_path: Path) -> None:
    now = 1e9
    cache = Store(tmp_path, now=lambda: now)
    cache.put_failure("gone", "git", "up")
    now += MINUTES * 60 - 1
    assert cache.get_failure("git", "up") == "gone; asked 10 min ago, `shardbook fetch` asks again"
    assert cache.get_failure("git", "other") == ""
    assert Store(tmp_path, refresh=True, now=lambda: now).get_failure("git", "up") == ""
    now += 1
    assert cache.get_failure("git", "up") == ""
    now -= 1e6  # the clock was set back
    assert cache.get_failure("git", "up") == ""
    cache.put_answer("no", ["what another version kept"], "git", "up")
    assert cache.get_failure("git", "up") == ""
    cache.put_failure("gone", "git", "up")
    cache.put_failure("", "git", "up")
    assert cache.get_failure("git", "up") == ""
