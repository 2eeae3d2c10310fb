"""The source's own repository: exactly the pinned commit, its trees, and the files asked for."""

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
from notelab.sources.git.reach import Reach
from notelab.sources.git.url import check_url, endpoint, shown

_TRANSPORTS = "https:ssh:file"
_RELEASE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._/+-]{0,200}$")
_NO_SUCH = re.compile(r"not our ref|couldn't find remote ref|bad object")
_FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
_SECONDS = 300  # for one fetch; a connection that stalls is dropped much sooner


class Remote:
    """The remotes of sources, each with a bare, partial repository of its own under `root`."""

    def __init__(self, root: Path) -> None:
        """Nothing is made or asked yet."""
        self._root = root / "git"
        self._reach = Reach()
        self.tags: dict[tuple[str, str], str] = {}  # what remotes said of releases in this run

    def reach(self, url: str) -> None:
        """Find out whether the host of `url` answers; asked once, and in ten seconds at most.

        Raises:
            SourceError: it doesn't, or the address is of a kind that is not let near git.
        """
        check_url(url)
        self._reach.check(url, GitCommand(None, _TRANSPORTS))

    def at_hand(self, source: Source) -> bool:
        """Tell whether the commit can be read without a network: fetched before, or on disk."""
        check_url(source.url)
        place = self._root / f"{_key(source.url)}.git"
        return endpoint(source.url) is None or (
            place.is_dir() and git_tree.has_commit(GitCommand(place), source.commit)
        )

    def offer(self, source: Source, wanted: Wanted) -> Answers:
        """Return what the pinned commit has at the paths wanted.

        Raises:
            SourceError: the remote can't be reached, or it won't hand the commit over.
        """
        paths = list(wanted)
        with self.repository(source.url) as git:
            who = f"git {host_of(source.url)}"
            local = GitCommand(git.git_dir)
            if git_tree.has_commit(local, source.commit):
                answers = git_tree.read(local, source.commit, paths, who)
                if not any(isinstance(one, Refused) and not one.final for one in answers.values()):
                    return answers
            self.bring(git, source)
            # git would wait for minutes where the host is gone by now.
            self._reach.check(source.url, git)
            with suppress(SourceError):  # the files may come all the same
                self._ask_for_tag(git, source)
            found = git_tree.entries(git, source.commit, paths)
            if isinstance(found, dict):
                files = {blob for mode, blob in found.values() if mode.startswith("100")}
                _bring_blobs(git, local, files)
            return git_tree.read(git, source.commit, paths, who)

    def bring(self, git: GitCommand, source: Source) -> None:
        """Have the pinned commit in the cache repository `git`, fetching it if it isn't there.

        Raises:
            SourceError: the remote can't be reached, or it won't hand the commit over.
        """
        local = GitCommand(git.git_dir)
        if git_tree.has_commit(local, source.commit):
            return
        self._reach.check(source.url, git)
        asked = [source.commit]
        if source.release and _RELEASE.match(source.release) and ".." not in source.release:
            # A server that hands out only what its refs name has the release's tag at least.
            asked.append(f"refs/tags/{source.release}")
        why = ""
        for one in asked:
            for narrowing in ("--filter=tree:0", "--no-filter"):
                ran = git.run(*_FETCH, "--depth=1", narrowing, "origin", one, timeout=_SECONDS)
                if ran.status == 0 and git_tree.has_commit(local, source.commit):
                    return
                why = why or ran.why()
        if _NO_SUCH.search(why):
            raise UnknownCommitError(f"{host_of(source.url)} has no commit {source.commit[:12]}")
        raise SourceError(f"{host_of(source.url)} doesn't hand {source.commit[:12]} over: {why}")

    def refs(self, url: str, *patterns: str) -> list[tuple[str, str]]:
        """Return the remote's refs that match, each with its id; '^{}' marks a peeled tag.

        Raises:
            SourceError: the remote can't be asked.
        """
        with self.repository(url) as git:
            self._reach.check(url, git)
            return _refs(git, url, patterns)

    def ask_for_tag(self, source: Source) -> None:
        """Ask the remote which commit the source's release tag names; `tags` has the answer.

        Raises:
            SourceError: the remote can't be asked.
        """
        with self.repository(source.url) as git:
            self._reach.check(source.url, git)
            self._ask_for_tag(git, source)

    def _ask_for_tag(self, git: GitCommand, source: Source) -> None:
        release = source.release or ""
        if not _RELEASE.match(release) or ".." in release:
            return
        name = f"refs/tags/{release}"
        refs = dict(_refs(git, source.url, (name, f"{name}^{{}}")))
        self.tags[source.url, release] = refs.get(f"{name}^{{}}", refs.get(name, ""))

    def peeled(self, url: str, identity: str) -> str:
        """Return the commit that a full id names on the remote.

        Raises:
            SourceError: the remote can't be asked, or has no such commit.
        """
        with self.repository(url) as git:
            self.bring(git, Source(name="", url=url, commit=identity))
            ran = GitCommand(git.git_dir).run("rev-parse", f"{identity}^{{commit}}")
        return ran.out.decode().strip()

    @contextmanager
    def repository(self, url: str) -> Iterator[GitCommand]:
        """Open the cache repository of `url`, alone; where the store is read-only, one for now.

        Raises:
            SourceError: the address is of a kind that is not let near git.
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
                yield _opened(Path(folder) / f"{key}.git", url)
            return
        with FileLock(self._root / f"{key}.lock"):  # which goes with the process that holds it
            yield _opened(self._root / f"{key}.git", url)


def _refs(git: GitCommand, url: str, patterns: Sequence[str]) -> list[tuple[str, str]]:
    ran = git.run("ls-remote", "--", "origin", *patterns, timeout=120)
    if ran.status:
        raise SourceError(f"{host_of(url)} can't be asked: {ran.why()}")
    lines = [line.partition("\t") for line in split_lines(ran.out.decode("utf-8", "replace"))]
    return [(name, identity) for identity, _, name in lines if is_commit(identity)]


def _key(url: str) -> str:
    return sha256(url.encode()).hexdigest()


def host_of(url: str) -> str:
    """Return how a reason names the remote: its host, or the path on disk."""
    place = endpoint(url)
    return place[0] if place else shown(url)


def _opened(place: Path, url: str) -> GitCommand:
    git = GitCommand(place, _TRANSPORTS)
    if place.is_dir():
        # We are alone here, so a lock that stands was left by a fetch that was ended.
        for stale in ("shallow.lock", "config.lock", "HEAD.lock", "packed-refs.lock"):
            (place / stale).unlink(missing_ok=True)
        sound = GitCommand(place).run("config", "--get", "remote.origin.url")
        if sound.status == 0 and sound.out.decode("utf-8", "replace").strip() == url:
            return git
        rmtree(place, ignore_errors=True)
    _make(place, url)
    return git


def _make(place: Path, url: str) -> None:
    """Make the repository aside and put it in place whole."""
    scratch = Path(mkdtemp(prefix=".new-", dir=place.parent))
    try:
        made = GitCommand(None).run("init", "--quiet", "--bare", "--template=", "--", str(scratch))
        if made.status:
            raise SourceError(f"{place}: no repository could be made there: {made.why()}")
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


def _bring_blobs(git: GitCommand, local: GitCommand, blobs: set[str]) -> None:
    """Fetch the blobs that are missing in one go; git alone would fetch them one by one."""
    known, _ = git_tree.sizes_of(local, blobs)
    missing = "".join(f"{blob}\n" for blob in sorted(blobs - known.keys())).encode()
    if missing:
        git.run(
            *("-c", "fetch.negotiationAlgorithm=noop", *_FETCH),
            *("--filter=blob:none", "--stdin", "origin"),
            stdin=missing,
            timeout=_SECONDS,
        )
