"""Published packages: a few ranges of them, and never trusted to be what they say."""

import csv
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from notelab.sources.answers import FoundFile, Source, SourceError
from notelab.sources.index import wheel as wheel_provider
from notelab.sources.index.address import Address, Settings
from notelab.sources.index.wheel import open_wheel
from notelab.sources.library import Library
from notelab.sources.package import UnreadableMemberError, built_from
from notelab.sources.store import Store, blob_id
from tests.notelab.sources.package_index import INFO, NAME, VERSION, WHEEL, make_wheel, serving
from tests.notelab.sources.upstream import reasons

COMMIT = "1" * 40
DATA = b"def one():\n    return 1\n"
PATH = "trial/one.py"
FILES = {PATH: DATA, "trial/two.py": b"def two():\n    return 2\n"}
PROVING = {**FILES, "trial/version.py": f"git_version = {COMMIT!r}\n".encode()}
SOURCE = Source("up", "ext::refused", COMMIT, wheel=f"{NAME}=={VERSION}")


pytestmark = pytest.mark.usefixtures("pip_of_its_own")


def _library(tmp_path: Path) -> Library:
    return Library(Store(tmp_path / "cache"), {})


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """Ask an index, that serves some files or a page, for a file at the pin."""

    def read(*wheels: Path, commit: str = COMMIT, blob: str | None = None, **page: bytes) -> object:
        with serving(*wheels, **page) as index:
            monkeypatch.setenv("PIP_INDEX_URL", index.url)
            source = Source("up", "ext::refused", commit, wheel=SOURCE.wheel)
            return _library(tmp_path).read(source, {PATH: blob})[PATH]

    return read


def test_two_files_move_a_hundredth_of_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path, FILES)
    with serving(wheel) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        wanted = {path: blob_id(data) for path, data in FILES.items()}
        answers = _library(tmp_path).read(SOURCE, dict(wanted))
        assert all(isinstance(name, FoundFile) for name in answers.values()), answers
        assert index.moved < 150_000
        assert index.moved < wheel.stat().st_size / 50
        before = index.moved
        again = _library(tmp_path).read(SOURCE, dict(wanted))
        assert [name.provider for name in again.values() if isinstance(name, FoundFile)] == [
            "store"
        ] * 2
        assert index.moved == before


def test_a_wheel_without_a_commit_proves_known_files(
    tmp_path: Path, ask: Callable[..., object]
) -> None:
    answer = ask(make_wheel(tmp_path, FILES, filler=10))
    assert any("names no commit" in reason for reason in reasons(answer))


@pytest.mark.parametrize(("commit", "proved"), [(COMMIT, True), ("2" * 40, False)])
def test_a_wheel_that_names_the_pin_proves_its_files(
    tmp_path: Path, ask: Callable[..., object], commit: str, *, proved: bool
) -> None:
    answer = ask(make_wheel(tmp_path, PROVING, filler=10), commit=commit)
    assert (isinstance(answer, FoundFile) and answer.proof == "wheel") is proved


def test_other_bytes_than_the_locks_are_refused(tmp_path: Path, ask: Callable[..., object]) -> None:
    answer = ask(make_wheel(tmp_path, PROVING, filler=10), blob="a" * 40)
    assert any("a" * 40 in reason and blob_id(DATA) in reason for reason in reasons(answer))


@pytest.mark.parametrize(
    "page",
    [
        b"\0\xff garbage",
        b"{",
        b"<a href='file:///etc/hostname'>shardbook_trial-1.0-py3-none-any.whl</a>",
    ],
)
def test_an_index_that_answers_garbage_is_a_reason(ask: Callable[..., object], page: bytes) -> None:
    reason = reasons(ask(blob=blob_id(DATA), page=page))[-1]
    assert "wheel" in reason and "\n" not in reason


def test_an_index_without_the_wheel_is_a_reason(tmp_path: Path, ask: Callable[..., object]) -> None:
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(b"PK\x05\x06" * 30_000)
    assert reasons(ask(rubbish, blob=blob_id(DATA)))


def test_a_server_that_knows_no_ranges_is_not_downloaded_from(tmp_path: Path) -> None:
    with serving(make_wheel(tmp_path, FILES)) as index:
        index.ranges = False
        with pytest.raises(SourceError):
            open_wheel(
                Address(index.url.replace("/simple", f"/files/{WHEEL}"), WHEEL), Settings(), "wheel"
            )


def test_a_wheel_in_a_folder_is_read_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "some wheels"
    folder.mkdir()
    make_wheel(folder, FILES, filler=10)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())
    answer = _library(tmp_path).read(SOURCE, {PATH: blob_id(DATA)})[PATH]
    assert isinstance(answer, FoundFile), answer


def test_files_in_order_come_in_few_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"trial/{number}.py": os.urandom(900) for number in range(60)}
    files["trial/apart.bin"] = os.urandom(200_000)  # farther apart than it's worth to read on
    files |= {f"trial/{number}.py": os.urandom(900) for number in range(60, 99)}
    with serving(make_wheel(tmp_path, files)) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        package = _library(tmp_path).package(SOURCE)
        before, moved = len(index.requests), index.moved
        wanted = [name for name in files if name.endswith(".py")][::-1]
        order = package.in_order([*wanted[::2], "trial/no.py"])
        assert order[0] == "trial/no.py" and sorted(order[1:]) == sorted(wanted[::2])
        assert {name: package.read(name) for name in order[1:]} == {
            name: files[name] for name in wanted[::2]
        }
        assert len(index.requests) - before == 2
        assert index.moved - moved < 150_000


def test_a_longer_member_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_wheel(tmp_path, {"bomb.py": b"#" * 1_000_000, "lying.py": b"#" * 1000}, filler=10)
    content = path.read_bytes()
    content = content.replace((1000).to_bytes(4, "little"), (900).to_bytes(4, "little"))
    path.write_bytes(content)
    opened = open_wheel(Address(path.as_uri(), WHEEL), Settings(), "wheel")
    with pytest.raises(UnreadableMemberError):
        opened.read("lying.py")
    monkeypatch.setattr(wheel_provider, "MAX_FILE_BYTES", 10_000)
    with pytest.raises(UnreadableMemberError, match="above"):
        opened.read("bomb.py")


@pytest.mark.parametrize(
    ("text", "commit"),
    [
        (b"git_version = 'abc'", "abc"),
        (b"from typing import Optional\ngit_version: Optional[str] = 'abc'", "abc"),
        (b"git_version = print('run')", None), (b"git_version = 7", None), (b"def (", None),
        (b"\0", None), (b"-" * 100_000 + b"1", None), (b"# git_version = 'abc'", None),
    ],
)  # fmt: skip
def test_the_commit_is_read_from_a_version_file_unrun(text: bytes, commit: str | None) -> None:
    assert built_from(text) == commit


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "site"
    with zipfile.ZipFile(make_wheel(tmp_path, PROVING, filler=10)) as archive:
        archive.extractall(site)
    monkeypatch.syspath_prepend(str(site))
    return site


def _offline(tmp_path: Path, source: Source = SOURCE, path: str = PATH) -> object:
    library = Library(Store(tmp_path / "cache"), {}, offline=True)
    return library.read(source, {path: None})[path]


def test_an_installed_distribution_of_the_pin_answers(tmp_path: Path, installed: Path) -> None:
    answer = _offline(tmp_path)
    assert isinstance(answer, FoundFile)
    assert (answer.proof, answer.provider) == ("wheel", "installed")


def test_a_local_version_counts_as_its_release(tmp_path: Path, installed: Path) -> None:
    metadata = installed / INFO / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 1.0+cpu"))
    assert isinstance(_offline(tmp_path), FoundFile)


def test_another_version_does_not_answer(tmp_path: Path, installed: Path) -> None:
    source = Source("up", "ext::refused", COMMIT, wheel=f"{NAME}==1.0.1")
    answer = _offline(tmp_path, source)
    assert "is 1.0, the pin is 1.0.1" in reasons(answer)[0]


def test_an_installed_file_that_was_edited_does_not_answer(tmp_path: Path, installed: Path) -> None:
    (installed / PATH).write_bytes(DATA + b"# mine\n")
    answer = _offline(tmp_path)
    assert "was changed after it was installed" in reasons(answer)[0]


def test_an_installed_link_is_not_followed(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "elsewhere.py").write_bytes(DATA)
    (installed / PATH).unlink()
    (installed / PATH).symlink_to(tmp_path / "elsewhere.py")
    answer = _offline(tmp_path)
    assert "symbolic link" in reasons(answer)[0]


def test_a_file_that_record_does_not_list_does_not_answer(tmp_path: Path, installed: Path) -> None:
    (installed / "trial/stray.py").write_bytes(DATA)
    assert not isinstance(_offline(tmp_path, path="trial/stray.py"), FoundFile)
    with (installed / INFO / "RECORD").open(newline="") as stream:
        assert "trial/stray.py" not in [row[0] for row in csv.reader(stream)]
    assert str(installed) in sys.path
