"""Mirrors and remotes: exactly the pinned commit, and nothing of theirs is run."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from hashlib import sha1
from pathlib import Path

import pytest

from notelab.sources.answers import Absent, FoundFile, Source, SourceError, Unreachable
from notelab.sources.git.fetch import HostProbe
from notelab.sources.git.url import check_url, redact
from notelab.sources.library import Library
from notelab.sources.store import Store, blob_id
from tests.limits import LIMIT
from tests.notelab.scratch import commit_all, git
from tests.notelab.sources.upstream import ONE, TWO, folder, make_upstream, reasons, upstream

__all__ = ["folder", "upstream"]


def _library(tmp_path: Path, mirror: Path | None = None, *, offline: bool = False) -> Library:
    return Library(Store(tmp_path / "cache"), {"up": mirror} if mirror else {}, offline=offline)


def _cache(tmp_path: Path) -> Path:
    (place,) = (tmp_path / "cache/git").glob("*.git")
    return place


def _objects(place: Path) -> list[str]:
    listed = git(place, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)")
    return sorted(listed.split())


def test_a_fetch_brings_the_commit_and_the_files_asked_for(
    tmp_path: Path, upstream: Source
) -> None:
    answer = _library(tmp_path).read(upstream, {ONE: None})[ONE]
    assert isinstance(answer, FoundFile)
    assert answer.data == b"def one():\n    return 1\n"
    assert (answer.blob, answer.proof) == (blob_id(answer.data), "git")
    assert _objects(_cache(tmp_path)) == ["blob", "commit", "tree", "tree", "tree"]


def test_a_server_that_does_not_filter_is_fetched_from(tmp_path: Path, folder: Path) -> None:
    plain = make_upstream(folder, filters=False)
    answers = _library(tmp_path).read(plain, {ONE: None, TWO: None})
    assert all(
        isinstance(answer, FoundFile) and answer.proof == "git" for answer in answers.values()
    )


def test_a_lock_of_a_dead_fetch_is_cleared(tmp_path: Path, folder: Path, upstream: Source) -> None:
    _library(tmp_path).read(upstream, {ONE: None})
    (_cache(tmp_path) / "shallow.lock").write_text("")
    later = Source("up", upstream.url, git(folder, "rev-parse", "main"))
    assert isinstance(_library(tmp_path).read(later, {ONE: None})[ONE], FoundFile)


def test_a_commit_that_was_fetched_once_needs_no_remote_again(
    tmp_path: Path, folder: Path, upstream: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise SourceError("no host can be reached")

    _library(tmp_path).read(upstream, {ONE: None})
    shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "cache/blobs")
    monkeypatch.setattr(HostProbe, "check", refuse)
    assert isinstance(_library(tmp_path).read(upstream, {ONE: None})[ONE], FoundFile)


def test_a_commit_comes_with_its_trees_so_a_path_that_it_lacks_asks_no_remote(
    tmp_path: Path, folder: Path, upstream: Source
) -> None:
    (folder / "apart").mkdir()
    (folder / "apart/three.py").write_text("3\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "third")
    source = Source("up", upstream.url, git(folder, "rev-parse", "HEAD"))
    _library(tmp_path).read(source, {ONE: None})
    shutil.rmtree(folder)
    absent = _library(tmp_path).read(source, {"apart/thre.py": None})["apart/thre.py"]
    assert isinstance(absent, Absent)
    assert (absent.definite, absent.suggestions) == (True, ["apart/three.py"])


def test_a_cached_repository_of_an_older_kind_is_renewed(tmp_path: Path, upstream: Source) -> None:
    _library(tmp_path).read(upstream, {ONE: None})
    git(_cache(tmp_path), "config", "remote.origin.partialclonefilter", "tree:0")
    shutil.rmtree(tmp_path / "cache/blobs")
    assert isinstance(_library(tmp_path).read(upstream, {ONE: None})[ONE], FoundFile)
    kind = git(_cache(tmp_path), "config", "remote.origin.partialclonefilter")
    assert kind == "blob:none"


@pytest.mark.parametrize("kind", ["plain", "bare", "linked", "configured"])
def test_a_mirror_of_any_kind_answers(
    tmp_path: Path, folder: Path, upstream: Source, kind: str
) -> None:
    mirror = folder if kind in ("plain", "configured") else tmp_path / kind
    if kind == "bare":
        git(tmp_path, "clone", "-q", "--bare", str(folder), str(mirror))
    elif kind == "linked":
        git(folder, "worktree", "add", "-q", "--detach", str(mirror))
    elif kind == "configured":  # with all that git reads
        text = '[includeIf "gitdir:~/any/"]\n\tpath = ~/none\n[alias]\n\tl = log \\\n\t-1\n'
        with (folder / ".git/config").open("a") as stream:
            stream.write(text)
    answer = _library(tmp_path, mirror, offline=True).read(upstream, {ONE: None})[ONE]
    assert isinstance(answer, FoundFile)
    assert answer.proof == "git"


def test_a_path_that_the_commit_lacks_is_definitely_absent_and_near_ones_are_named(
    tmp_path: Path, folder: Path, upstream: Source
) -> None:
    answer = _library(tmp_path, folder).read(upstream, {"pkg/deep/ones.py": None})
    absent = answer["pkg/deep/ones.py"]
    assert isinstance(absent, Absent)
    assert absent.definite
    assert absent.suggestions[0] == ONE


@pytest.mark.parametrize("mirrored", [True, False])
def test_a_symbolic_link_is_refused_and_none_is_followed(
    tmp_path: Path, folder: Path, upstream: Source, *, mirrored: bool
) -> None:
    library = _library(tmp_path, folder if mirrored else None)
    answers = library.read(upstream, {"pkg/link.py": None, "pkg/linked/one.py": None})
    link = answers["pkg/link.py"]
    assert "symbolic link" in reasons(link)[0]
    through = answers["pkg/linked/one.py"]
    assert isinstance(through, Absent)
    assert through.definite


def test_a_file_above_8_mebibytes_is_unread(tmp_path: Path, folder: Path, upstream: Source) -> None:
    answer = _library(tmp_path, folder).read(upstream, {"big.py": None})["big.py"]
    assert "9,100,000 bytes" in reasons(answer)[0]


def test_only_a_damaged_object_is_refused(tmp_path: Path, folder: Path, upstream: Source) -> None:
    names = ("first.bin", "second.bin")
    for name in names:  # long enough that git gives a size before it finds the damage
        (folder / name).write_bytes(os.urandom(50_000))
    commit_all(folder, "two more")
    source = Source(name="up", url=upstream.url, commit=git(folder, "rev-parse", "HEAD"))
    for name in names:  # whichever git reads first
        blob = git(folder, "rev-parse", f"HEAD:{name}")
        stored = folder / ".git/objects" / blob[:2] / blob[2:]
        whole = stored.read_bytes()
        stored.chmod(0o600)
        stored.write_bytes(whole[:-9] + b"bad bytes")
        library = _library(tmp_path / name, folder, offline=True)
        answers = dict(library.read(source, dict.fromkeys(names)))
        refused = answers.pop(name)
        assert any(f"object {blob[:12]} is damaged" in answer for answer in reasons(refused))
        assert all(isinstance(answer, FoundFile) for answer in answers.values())
        stored.write_bytes(whole)


def test_a_replaced_object_is_not_the_pin(tmp_path: Path, folder: Path, upstream: Source) -> None:
    git(folder, "replace", upstream.commit, "main")
    answer = _library(tmp_path, folder, offline=True).read(upstream, {ONE: None})[ONE]
    assert isinstance(answer, FoundFile)
    assert b"changed" not in answer.data


def test_a_partial_mirror_runs_nothing(tmp_path: Path, folder: Path, upstream: Source) -> None:
    partial, trace = tmp_path / "partial.git", tmp_path / "trace"
    git(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", folder.as_uri(), str(partial))
    git(partial, "config", "remote.origin.url", f"ext::sh -c touch% {trace}")
    git(partial, "config", "protocol.ext.allow", "always")
    git(partial, "config", "core.fsmonitor", f"touch {trace}")
    answer = _library(tmp_path, partial, offline=True).read(upstream, {ONE: None})[ONE]
    assert any("partial.git" in reason for reason in reasons(answer))
    assert not trace.exists()


def test_a_hook_that_calls_us_does_not_lend_us_its_repository(
    tmp_path: Path, folder: Path, upstream: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "nowhere/objects"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nowhere/index"))
    assert isinstance(_library(tmp_path, folder).read(upstream, {ONE: None})[ONE], FoundFile)
    assert isinstance(_library(tmp_path).read(upstream, {TWO: None})[TWO], FoundFile)


@pytest.mark.parametrize("place", ["mirror", "remote"])
def test_refs_lead_to_a_commit(tmp_path: Path, folder: Path, upstream: Source, place: str) -> None:
    alone = place == "mirror"
    library = _library(tmp_path, folder if alone else None, offline=alone)
    tag_object = git(folder, "rev-parse", "v1")
    assert tag_object != upstream.commit
    for ref in ("v1", upstream.commit, upstream.commit[:10], tag_object, upstream.commit.upper()):
        assert library.resolve(upstream, ref) == upstream.commit, ref
    assert library.resolve(upstream, "side") == git(folder, "rev-parse", "side")


@pytest.mark.parametrize("place", ["mirror", "remote"])
def test_an_unknown_ref_is_refused(
    tmp_path: Path, folder: Path, upstream: Source, place: str
) -> None:
    library = _library(tmp_path, folder if place == "mirror" else None)
    for ref in ("v2", "f" * 40, "abcdef0123"):
        with pytest.raises(SourceError):
            library.resolve(upstream, ref)


@pytest.mark.parametrize(
    "ref", ["--upload-pack=x", "-v", "a b", "a..b", "HEAD@{1}", "a\nb", "", "a:b", "a^"]
)
def test_a_ref_that_could_be_an_option_or_an_expression_is_refused(
    tmp_path: Path, folder: Path, upstream: Source, ref: str
) -> None:
    with pytest.raises(SourceError, match="is no tag, branch or commit"):
        _library(tmp_path, folder).resolve(upstream, ref)


def test_ambiguous_digits_are_said_to_be_so(tmp_path: Path, folder: Path, upstream: Source) -> None:
    text = subprocess.check_output(["git", "cat-file", "commit", upstream.commit], cwd=folder)
    for number in range(2**20):  # until another commit has the first four digits of the pin
        data = b"%s%d" % (text, number)
        if sha1(b"commit %d\0%s" % (len(data), data)).hexdigest()[:4] == upstream.commit[:4]:
            break
    put = ["git", "hash-object", "-t", "commit", "-w", "--stdin"]
    subprocess.run(put, input=data, cwd=folder, check=True, capture_output=True)
    with pytest.raises(SourceError, match="several commits begin with"):
        _library(tmp_path, folder).resolve(Source("up", folder.as_uri(), ""), upstream.commit[:4])


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c id", "ext::x", "--upload-pack=id", "-oProxyCommand=id", "/srv/repo.git",
        "../repo.git", "http://example.invalid/x.git", "git://example.invalid/x.git",
        "ssh://-oProxyCommand=id/x", "ssh://-oProxyCommand=id@host/x", "-x@host:repo",
        "https://host:port/x", "https://", "file://host/x", "https://example.invalid/a b",
        "https://example.invalid/\nx", "",
    ],
)  # fmt: skip
def test_a_hostile_address_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(SourceError):
        check_url(url)
    with pytest.raises(SourceError):
        _library(tmp_path).resolve(Source("up", url, ""), "v1")
    answer = _library(tmp_path).read(Source("up", url, "1" * 40), {ONE: None})[ONE]
    assert isinstance(answer, Unreachable)


@pytest.mark.parametrize(
    "url",
    ["https://h.invalid/a.git", "ssh://git@h.invalid:22/a", "git@h.invalid:a/b.git", "file:///a/b"],
)
def test_an_honest_address_is_let_through(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize("mirrored", [True, False])
def test_a_worktree_is_a_real_clone_at_the_pin_with_nothing_run_or_followed(
    tmp_path: Path, folder: Path, upstream: Source, *, mirrored: bool
) -> None:
    library, place = _library(tmp_path, folder if mirrored else None), tmp_path / "to read"
    place.mkdir()
    library.worktree(upstream, place)
    assert git(place, "log", "-1", "--format=%H %s") == f"{upstream.commit} one"
    assert git(place, "status", "--porcelain") == ""
    assert not (place / "pkg/link.py").is_symlink()
    assert (place / ONE).read_text() == "def one():\n    return 1\n"
    reports: list[str] = []
    Library(Store(tmp_path / "cache"), {}, progress=reports.append).worktree(upstream, place)
    assert "already" in reports[0]
    (place / ONE).write_text("def one():\n    return 2\n")
    with pytest.raises(SourceError, match=f"1 of its files were changed: {ONE}"):
        library.worktree(upstream, place)


@pytest.mark.parametrize("mirrored", [True, False])
def test_a_worktree_may_be_named_from_the_working_directory(
    tmp_path: Path,
    folder: Path,
    upstream: Source,
    monkeypatch: pytest.MonkeyPatch,
    *,
    mirrored: bool,
) -> None:
    (tmp_path / "book").mkdir()
    monkeypatch.chdir(tmp_path / "book")
    mirror = Path("..") / folder.relative_to(tmp_path) if mirrored else None
    for place in (Path("../to read"), Path("inner/to read")):
        _library(tmp_path, mirror).worktree(upstream, place)
        assert (place / ONE).read_text() == "def one():\n    return 1\n"
        assert git(place, "log", "-1", "--format=%H") == upstream.commit
        _library(tmp_path, mirror).worktree(upstream, place)  # it stands: nothing to do


def test_a_worktree_never_replaces_files(tmp_path: Path, folder: Path, upstream: Source) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    with pytest.raises(SourceError, match="already exists"):
        _library(tmp_path, folder).worktree(upstream, place)
    assert [path.name for path in place.iterdir()] == ["thesis.txt"]


def test_a_failed_worktree_leaves_nothing(tmp_path: Path, folder: Path, upstream: Source) -> None:
    shutil.rmtree(folder)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SourceError, match="no provider has"):
        _library(tmp_path).worktree(upstream, tmp_path / "new")
    assert sorted(tmp_path.iterdir()) == before


def test_what_an_ended_fetch_left_behind_is_no_obstacle(tmp_path: Path, upstream: Source) -> None:
    _library(tmp_path).read(upstream, {ONE: None})
    place = _cache(tmp_path)
    (place / "objects/pack/tmp_pack_x").write_bytes(b"PACK")
    (place.parent / ".new-dead").mkdir()
    (place / "config").write_text("[core]\n\trepositoryfor")
    shutil.rmtree(tmp_path / "cache/blobs")
    assert isinstance(_library(tmp_path).read(upstream, {TWO: None})[TWO], FoundFile)


_READ = """
import sys
from pathlib import Path
from notelab.sources.library import Library
from notelab.sources.answers import Source
from notelab.sources.store import Store
url, commit, cache, path = sys.argv[1:]
found = Library(Store(Path(cache)), {}).read(Source("up", url, commit), {path: None})
print(type(found[path]).__name__, getattr(found[path], "reasons", ""))
"""


def _reader(upstream: Source, cache: Path, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _READ, upstream.url, upstream.commit, str(cache), ONE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        start_new_session=True,
    )


@pytest.mark.skipif(os.name != "posix", reason="signals and FIFOs")
@pytest.mark.may_skip
@pytest.mark.parametrize(
    "ending", [signal.SIGINT, signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.ci)]
)
def test_an_interrupt_in_the_middle_of_a_fetch_leaves_everything_usable(
    tmp_path: Path, folder: Path, upstream: Source, ending: signal.Signals
) -> None:
    reached, transport = tmp_path / "reached", tmp_path / "transport"
    os.mkfifo(reached)
    os.mkfifo(tmp_path / "never")
    # The first connection says that it stands and then never answers.
    transport.write_text(f"#!/bin/sh\necho here > '{reached}'\nexec cat '{tmp_path / 'never'}'\n")
    transport.chmod(0o755)
    over_ssh = Source("up", f"ssh://h.invalid{folder}", upstream.commit)
    reader = _reader(over_ssh, tmp_path / "cache", GIT_SSH_COMMAND=str(transport))
    assert reached.read_text() == "here\n"
    os.killpg(reader.pid, ending)
    reader.communicate(timeout=LIMIT)
    assert reader.returncode != 0
    reached.unlink()
    transport.write_text(f"#!/bin/sh\nexec git-upload-pack '{folder}'\n")
    again = _reader(over_ssh, tmp_path / "cache", GIT_SSH_COMMAND=str(transport))
    out, error = again.communicate(timeout=LIMIT)
    assert out.startswith("FoundFile"), out + error


def test_two_at_once_wait_for_each_other(tmp_path: Path, upstream: Source) -> None:
    readers = [_reader(upstream, tmp_path / "cache") for _ in range(2)]
    outs = [reader.communicate(timeout=LIMIT) for reader in readers]
    assert [out.split()[0] for out, _ in outs] == ["FoundFile", "FoundFile"], outs


def test_a_host_that_refuses_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[tuple[str, int]] = []
    done = threading.Event()

    def refuse(address: tuple[str, int], timeout: float) -> None:
        assert timeout <= 10
        connections.append(address)
        done.set()
        raise ConnectionRefusedError(111, "Connection refused")

    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("socket.create_connection", refuse)
    library = _library(tmp_path)
    for name in ("a", "b"):
        source = Source(name, f"https://h.invalid/{name}.git", "1" * 40)
        answer = library.read(source, {ONE: None})[ONE]
        assert "git: h.invalid can't be reached (Connection refused)" in reasons(answer)
    assert done.is_set()
    assert connections == [("h.invalid", 443)]


def test_a_url_is_named_without_its_login_in_at_most_120_characters() -> None:
    long = redact("https://user:s3cret@host.invalid/" + "x" * 200)
    assert long.startswith("https://host.invalid/xx") and len(long) == 120
