"""Fetches from a source's remote: the pinned commit, its trees and the requested files only."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp

from filelock import FileLock

from notelab.lines import split_lines
from notelab.sources.answers import (
    Answers,
    Refused,
    Source,
    SourceError,
    UnknownCommitError,
    Wanted,
    is_commit,
)
from notelab.sources.git import tree as git_tree
from notelab.sources.git.command import GitCommand
from notelab.sources.git.probe import HostProbe
from notelab.sources.git.url import check_url, endpoint, redact

_TRANSPORTS = "https:ssh:file"
_RELEASE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._/+-]{0,200}$")
_NO_SUCH = re.compile(r"not our ref|couldn't find remote ref|bad object")
_FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
_SECONDS = 300  # for one fetch; a stalled connection is dropped much sooner


class Remote:
    """Asks the remotes of sources; each has a bare partial repository below `root`."""

    def __init__(self, root: Path) -> None:
        """Remember the folder; nothing is created or asked yet."""
        self._root = root / "git"
        self._probe = HostProbe()
        self.tags: dict[
            tuple[str, str], str
        ] = {}  # by url and release: what remotes answered in this run

    def probe(self, url: str) -> None:
        """Find out whether the host of `url` answers; each host is asked once, for ten seconds.

        Raises:
            SourceError: it doesn't answer, or git isn't allowed to use such an address.
        """
        check_url(url)
        self._probe.check(url, GitCommand(None, _TRANSPORTS))

    def is_available_offline(self, source: Source) -> bool:
        """Tell whether the commit was fetched before or is on disk, so no network is needed."""
        check_url(source.url)
        place = self._root / f"{_key(source.url)}.git"
        return endpoint(source.url) is None or (
            place.is_dir() and git_tree.has_commit(GitCommand(place), source.commit)
        )

    def offer(self, source: Source, wanted: Wanted) -> Answers:
        """Return what the pinned commit has at the wanted paths.

        Raises:
            SourceError: the remote can't be reached, or it refuses to send the commit.
        """
        paths = list(wanted)
        with self.repository(source.url) as git:
            who = f"git {host_of(source.url)}"
            local = GitCommand(git.git_dir)
            if git_tree.has_commit(local, source.commit):
                answers = git_tree.read(local, source.commit, paths, who)
                if not any(
                    isinstance(answer, Refused) and not answer.final for answer in answers.values()
                ):
                    return answers
            self.fetch_commit(git, source)
            # If the host has gone since the last check, git would wait for minutes.
            self._probe.check(source.url, git)
            with suppress(SourceError):  # the files may be fetched all the same
                self._ask_for_tag(git, source)
            entries = git_tree.list_entries(git, source.commit, paths)
            if isinstance(entries, dict):
                files = {blob for mode, blob in entries.values() if mode.startswith("100")}
                _fetch_blobs(git, local, files)
            return git_tree.read(git, source.commit, paths, who)

    def fetch_commit(self, git: GitCommand, source: Source) -> None:
        """Fetch the pinned commit into the cache repository `git` if it isn't there.

        Raises:
            SourceError: the remote can't be reached, or it refuses to send the commit.
        """
        local = GitCommand(git.git_dir)
        if git_tree.has_commit(local, source.commit):
            return
        self._probe.check(source.url, git)
        refs = [source.commit]
        if source.release and _RELEASE.match(source.release) and ".." not in source.release:
            # Some servers send only commits that a ref names; these have the release's tag.
            refs.append(f"refs/tags/{source.release}")
        why = ""
        for ref in refs:
            for narrowing in ("--filter=tree:0", "--no-filter"):
                ran = git.run(*_FETCH, "--depth=1", narrowing, "origin", ref, timeout=_SECONDS)
                if ran.status == 0 and git_tree.has_commit(local, source.commit):
                    return
                why = why or ran.why()
        if _NO_SUCH.search(why):
            raise UnknownCommitError(f"{host_of(source.url)} has no commit {source.commit[:12]}")
        raise SourceError(f"{host_of(source.url)} refuses commit {source.commit[:12]}: {why}")

    def list_refs(self, url: str, *patterns: str) -> list[tuple[str, str]]:
        """Return the remote's matching refs with their ids; a name with '^{}' is a peeled tag.

        Raises:
            SourceError: the remote can't be asked.
        """
        with self.repository(url) as git:
            self._probe.check(url, git)
            return _list_refs(git, url, patterns)

    def ask_for_tag(self, source: Source) -> None:
        """Ask the remote which commit the source's release tag names, and put it into `tags`.

        Raises:
            SourceError: the remote can't be asked.
        """
        with self.repository(source.url) as git:
            self._probe.check(source.url, git)
            self._ask_for_tag(git, source)

    def _ask_for_tag(self, git: GitCommand, source: Source) -> None:
        release = source.release or ""
        if not _RELEASE.match(release) or ".." in release:
            return
        name = f"refs/tags/{release}"
        refs = dict(_list_refs(git, source.url, (name, f"{name}^{{}}")))
        self.tags[source.url, release] = refs.get(f"{name}^{{}}", refs.get(name, ""))

    def peel(self, url: str, identity: str) -> str:
        """Return the commit that the object with a full id leads to on the remote.

        Raises:
            SourceError: the remote can't be asked, or has no such commit.
        """
        with self.repository(url) as git:
            self.fetch_commit(git, Source(name="", url=url, commit=identity))
            ran = GitCommand(git.git_dir).run("rev-parse", f"{identity}^{{commit}}")
        return ran.out.decode().strip()

    @contextmanager
    def repository(self, url: str) -> Iterator[GitCommand]:
        """Open the cache repository of `url`, locked; a temporary one if the store is read-only.

        Raises:
            SourceError: git isn't allowed to use such an address.
        """
        check_url(url)
        key = _key(url)
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            writable = os.access(self._root, os.W_OK)
        except OSError:
            writable = False
        if not writable:
            with TemporaryDirectory(prefix="shardbook-") as folder:
                yield _open_repository(Path(folder) / f"{key}.git", url)
            return
        with FileLock(self._root / f"{key}.lock"):  # the system releases it when the process ends
            yield _open_repository(self._root / f"{key}.git", url)


def _list_refs(git: GitCommand, url: str, patterns: Sequence[str]) -> list[tuple[str, str]]:
    ran = git.run("ls-remote", "--", "origin", *patterns, timeout=120)
    if ran.status:
        raise SourceError(f"{host_of(url)} can't be asked: {ran.why()}")
    lines = [line.partition("\t") for line in split_lines(ran.out.decode("utf-8", "replace"))]
    return [(name, identity) for identity, _, name in lines if is_commit(identity)]


def _key(url: str) -> str:
    return sha256(url.encode()).hexdigest()


def host_of(url: str) -> str:
    """Return how reasons name a remote: by its host, or by its path on disk."""
    place = endpoint(url)
    return place[0] if place else redact(url)


def _open_repository(place: Path, url: str) -> GitCommand:
    git = GitCommand(place, _TRANSPORTS)
    if place.is_dir():
        # We hold the lock, so any lock file of git was left by a fetch that was terminated.
        for stale in ("shallow.lock", "config.lock", "HEAD.lock", "packed-refs.lock"):
            (place / stale).unlink(missing_ok=True)
        sound = GitCommand(place).run("config", "--get", "remote.origin.url")
        if sound.status == 0 and sound.out.decode("utf-8", "replace").strip() == url:
            return git
        rmtree(place, ignore_errors=True)
    _create_repository(place, url)
    return git


def _create_repository(place: Path, url: str) -> None:
    """Create the repository under another name and rename it when it is complete."""
    scratch = Path(mkdtemp(prefix=".new-", dir=place.parent))
    try:
        init = GitCommand(None).run("init", "--quiet", "--bare", "--template=", "--", str(scratch))
        if init.status:
            raise SourceError(f"{place}: no repository could be made there: {init.why()}")
        git = GitCommand(scratch)
        for key, value in (
            ("remote.origin.url", url),
            ("remote.origin.promisor", "true"),
            ("remote.origin.partialclonefilter", "tree:0"),
            ("core.repositoryformatversion", "1"),
            ("extensions.partialclone", "origin"),
        ):
            git.run("config", key, value)
        scratch.rename(place)
    finally:
        rmtree(scratch, ignore_errors=True)


def _fetch_blobs(git: GitCommand, local: GitCommand, blobs: set[str]) -> None:
    """Fetch all missing blobs at once; git by itself would fetch them one by one."""
    sizes, _ = git_tree.read_sizes(local, blobs)
    missing = "".join(f"{blob}\n" for blob in sorted(blobs - sizes.keys())).encode()
    if missing:
        git.run(
            *("-c", "fetch.negotiationAlgorithm=noop", *_FETCH),
            *("--filter=blob:none", "--stdin", "origin"),
            stdin=missing,
            timeout=_SECONDS,
        )
