"""Fetches from a source's remote: the pinned commit with its trees, and the requested files.

Each host is asked once a run whether it answers, for ten seconds.
"""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp

from notelab.lines import split_lines
from notelab.sources.answers import (
    Answers,
    Source,
    SourceError,
    TagCommit,
    UnknownCommitError,
    Wanted,
    is_commit,
)
from notelab.sources.git import git_files
from notelab.sources.git.git_command import NETWORK, GitCommand
from notelab.sources.git.url import check_url, endpoint, host_of
from notelab.sources.store import Store
from notelab.sources.timeouts import run_within

_RELEASE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._/+-]{0,200}$")
_NO_SUCH = re.compile(r"not our ref|couldn't find remote ref|bad object")
_FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
_PROBE_SECONDS = 300  # for one fetch; a stalled connection is dropped much sooner
_CONFIG = """\
[core]
	repositoryformatversion = 1
	bare = true
[remote "origin"]
	url = "{url}"
	promisor = true
	partialclonefilter = blob:none
[extensions]
	partialclone = origin
"""


class Remote:
    """The remotes of sources; each has a bare partial repository beside the store's files."""

    def __init__(self, store: Store) -> None:
        """Remember the store; nothing is created or asked yet."""
        self._store, self._root = store, store.root / "git"
        self._probe = HostProbe()
        # By url and release: what remotes answered in this run.
        self._tags: dict[tuple[str, str | None], TagCommit] = {}

    def has(self, source: Source) -> bool:
        """Tell whether the commit was fetched before or is on disk, so no network is needed."""
        with suppress(SourceError):
            check_url(source.url)
            place = self._place(source.url)
            return endpoint(source.url) is None or (
                place.is_dir() and git_files.has_commit(GitCommand(place), source.commit)
            )
        return False

    def offer(self, source: Source, wanted: Wanted) -> Answers:
        """Return what the pinned commit has at the wanted paths.

        Raises:
            SourceError: the remote can't be reached, or it refuses to send the commit.
        """
        with self._asking(source), self._repository(source.url) as git:
            is_new = not git_files.has_commit(git, source.commit)
            if is_new:
                self._fetch_commit(git, source)
            missing = _list_missing(git, source.commit, wanted)
            if missing:
                self._probe.check(source.url)
                _fetch_blobs(git, missing)
            if is_new or missing:
                with suppress(SourceError):  # the files were fetched all the same
                    self._ask_for_tag(git, source)
            return git_files.read(git, source.commit, wanted, f"git {host_of(source.url)}")

    def tag(self, source: Source) -> TagCommit | None:
        """Return the commit that the source's release tag names, asked for once in this run.

        The result is None if the remote can't be asked.
        """
        if (source.url, source.release) not in self._tags:
            with suppress(SourceError), self._asking(source), self._repository(source.url) as git:
                self._probe.check(source.url)
                self._ask_for_tag(git, source)
        return self._tags.get((source.url, source.release))

    def list_refs(self, url: str, *patterns: str) -> dict[str, str]:
        """Return the ids of the remote's matching refs; a name with '^{}' is a peeled tag.

        Raises:
            SourceError: the remote can't be asked.
        """
        with self._repository(url) as git:
            self._probe.check(url)
            return _list_refs(git, url, *patterns)

    def replace_tag(self, url: str, name: str, commit: str) -> None:
        """Store the commit that a tag names now, if an earlier answer is stored."""
        if self._store.get_answer("tag", TagCommit, url, name):
            self._store.put_answer("tag", TagCommit(commit, f"git {host_of(url)}"), url, name)

    def peel(self, url: str, identity: str) -> str:
        """Return the commit that the object with a full id leads to on the remote.

        Raises:
            SourceError: the remote can't be asked, or has no such commit.
        """
        with self._repository(url) as git:
            if not git_files.has_commit(git, identity):
                self._fetch_commit(git, Source(name="", url=url, commit=identity))
            return git.run("rev-parse", f"{identity}^{{commit}}").text

    def _fetch_commit(self, git: GitCommand, source: Source) -> None:
        """Fetch the pinned commit; some servers send only commits that a ref names."""
        self._probe.check(source.url)
        refs, why = [source.commit], ""
        if source.release and _is_plain(source.release):
            refs.append(f"refs/tags/{source.release}")
        for ref in refs:
            for narrowing in ("--filter=blob:none", "--no-filter"):
                options = (*_FETCH, "--depth=1", narrowing, "origin", ref)
                ran = _with_network(git).run(*options, timeout=_PROBE_SECONDS)
                if ran.status == 0 and git_files.has_commit(git, source.commit):
                    return
                why = why or ran.why()
                if ran.status < 0:  # git took too long, or was ended
                    raise SourceError(f"{host_of(source.url)}: {ran.why()}")
        if _NO_SUCH.search(why):
            raise UnknownCommitError(f"{host_of(source.url)} has no commit {source.commit[:12]}")
        raise SourceError(f"{host_of(source.url)} refuses commit {source.commit[:12]}: {why}")

    def _ask_for_tag(self, git: GitCommand, source: Source) -> None:
        if source.release is None or not _is_plain(source.release):
            return
        name = f"refs/tags/{source.release}"
        refs = _list_refs(git, source.url, name, f"{name}^{{}}")
        tag = TagCommit(refs.get(f"{name}^{{}}", refs.get(name, "")), f"git {host_of(source.url)}")
        self._tags[source.url, source.release] = tag
        self._store.put_answer("tag", tag, source.url, source.release)

    @contextmanager
    def _asking(self, source: Source) -> Iterator[None]:
        """Don't ask a host that failed some minutes ago; remember whether it fails now."""
        whom = ("git", source.url, source.commit)
        if failure := self._store.get_failure(*whom):
            raise SourceError(failure)
        try:
            yield
        except UnknownCommitError:
            raise
        except SourceError as fault:
            self._store.put_failure(str(fault), *whom)
            raise
        self._store.put_failure("", *whom)

    def _place(self, url: str) -> Path:
        return self._root / f"{sha256(url.encode()).hexdigest()}.git"

    @contextmanager
    def _repository(self, url: str) -> Iterator[GitCommand]:
        """Open the cache repository of `url`, locked; a temporary one if the store is read-only."""
        from filelock import FileLock

        check_url(url)
        place = self._place(url)
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            writable = os.access(self._root, os.W_OK)
        except OSError:
            writable = False
        if not writable:
            with TemporaryDirectory(prefix="shardbook-") as folder:
                yield _open_repository(Path(folder) / place.name, url)
            return
        with FileLock(place.with_suffix(".lock")):  # the system releases it when the process ends
            yield _open_repository(place, url)


def _is_plain(release: str) -> bool:
    return bool(_RELEASE.match(release)) and ".." not in release


def _with_network(git: GitCommand) -> GitCommand:
    return GitCommand(git.git_dir, NETWORK)


def _list_refs(git: GitCommand, url: str, *patterns: str) -> dict[str, str]:
    ran = _with_network(git).run("ls-remote", "--", "origin", *patterns, timeout=120)
    if ran.status:
        raise SourceError(f"{host_of(url)} can't be asked: {ran.why()}")
    lines = [line.partition("\t") for line in split_lines(ran.text)]
    return {name: identity for identity, _, name in lines if is_commit(identity)}


def _list_missing(git: GitCommand, commit: str, wanted: Wanted) -> list[str]:
    """Return the ids of the wanted regular files whose contents the repository lacks."""
    entries = git_files.list_entries(git, commit, wanted).values()
    blobs = {blob for mode, blob in entries if mode.startswith(git_files.REGULAR)}
    # Listed all at once: git would look for a missing object on the remote.
    listed = git.run("cat-file", "--batch-all-objects", "--batch-check=%(objectname)", timeout=300)
    return sorted(blobs - set(split_lines(listed.text)))


def _fetch_blobs(git: GitCommand, blobs: list[str]) -> None:
    """Fetch blobs at once; git by itself would fetch them one by one."""
    _with_network(git).run(
        *("-c", "fetch.negotiationAlgorithm=noop", *_FETCH),
        *("--filter=blob:none", "--stdin", "origin"),
        stdin="".join(f"{blob}\n" for blob in blobs).encode(),
        timeout=_PROBE_SECONDS,
    )


def _open_repository(place: Path, url: str) -> GitCommand:
    """Return the repository at `place`; a damaged one, or one of an older kind, is made again."""
    git, config = GitCommand(place), _CONFIG.format(url=re.sub(r'(["\\])', r"\\\1", url))
    if place.is_dir():
        # We hold the lock, so any lock file of git was left by a fetch that was terminated.
        for stale in ("shallow.lock", "config.lock", "HEAD.lock", "packed-refs.lock"):
            (place / stale).unlink(missing_ok=True)
        with suppress(OSError):
            if (place / "config").read_text("utf-8", "replace") == config:
                return git
        rmtree(place, ignore_errors=True)
    # It is made under another name and renamed when it is complete.
    scratch = Path(mkdtemp(prefix=".new-", dir=place.parent))
    try:
        init = GitCommand(None).run("init", "--quiet", "--bare", "--template=", "--", str(scratch))
        if init.status:
            raise SourceError(f"{place}: no repository could be made there: {init.why()}")
        (scratch / "config").write_text(config, "utf-8")
        scratch.rename(place)
    finally:
        rmtree(scratch, ignore_errors=True)
    return git


_PROBE_SECONDS = 10
_OWN_WAYS = (
    *("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
    *("GIT_SSH_COMMAND", "GIT_SSH", "GIT_PROXY_COMMAND"),
)


class HostProbe:
    """Remembers during one run which hosts can't be reached."""

    def __init__(self) -> None:
        """Start with no host known."""
        self._known: dict[tuple[str, int], str] = {}

    def check(self, url: str) -> None:
        """Connect to the host of `url`, after git's settings have rewritten the address.

        With a proxy or a command of the user's own, no connection is tried.

        Raises:
            SourceError: it can't be reached, or git isn't allowed to use such an address.
        """
        check_url(url)
        git = GitCommand(None, NETWORK)
        where = git.run("ls-remote", "--get-url", "--", url).text or url
        place = endpoint(where)
        if place is None or any(map(os.environ.get, _OWN_WAYS)):
            return
        if git.run("config", "--get-urlmatch", "http.proxy", where).status == 0:
            return
        if place not in self._known:
            self._known[place] = _connect(*place)
        if self._known[place]:
            raise SourceError(self._known[place])


def _connect(host: str, port: int) -> str:
    """Connect once; return '' or why it failed. A limit applies, as name servers may hang."""
    try:
        run_within(
            _PROBE_SECONDS,
            host,
            lambda: socket.create_connection((host, port), _PROBE_SECONDS).close(),
        )
    except OSError as fault:
        return f"{host} can't be reached ({fault.strerror or fault})"
    except SourceError:
        return f"{host} can't be reached (no answer in {_PROBE_SECONDS} s)"
    return ""
