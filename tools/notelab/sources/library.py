"""One question, several providers: the bytes of a file at a pin, checked against its blob id."""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from notelab.sources.answers import Source, SourceError, TagCommit, Wanted, Wheel, is_commit
from notelab.sources.pending import Answer, Pending
from notelab.sources.slow import told_if_slow
from notelab.sources.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.sources.git.command import GitCommand
    from notelab.sources.index.published import Published
    from notelab.sources.package import Package
    from notelab.sources.remotes import Remotes

T = TypeVar("T")


class Library:
    """Reads cited files: from the store, a mirror, an installed wheel, git, the package index.

    Args:
        store: where files are kept between runs.
        mirrors: by source name, in small letters and with hyphens, clones on disk.
        offline: ask no remote.
        anew: ask remotes again, also those that said no some minutes ago.
        progress: is told, in a line, of whatever takes over a second, and of a store that can't be
            written.
    """

    def __init__(
        self,
        store: Store,
        mirrors: dict[str, Path],
        offline: bool = False,
        anew: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Nothing is read yet."""
        self._store, self._mirrors, self._progress = store, mirrors, progress
        self._offline, self._anew = offline, anew
        self._made: Remotes | None = None
        self._making = threading.Lock()
        self._told: set[str] = set()
        self._had: set[tuple[str, str]] = set()
        self._lacked: dict[tuple[str, str], list[str]] = {}
        self._answered: dict[Source, dict[tuple[str, str | None], Answer]] = {}

    def read(
        self, source: Source, wanted: Wanted, *, store_only: bool = False
    ) -> dict[str, Answer]:
        """Return, for each path, its bytes at the pin, or that it isn't there, or why not known.

        Args:
            source: the repository and its pin.
            wanted: each path with the blob id that the lock knows for it, or None.
            store_only: ask nobody but the store.
        """
        known = {} if store_only else self._answered.get(source, {})
        answers = {one: known[one, blob] for one, blob in wanted.items() if (one, blob) in known}
        left = {path: blob for path, blob in wanted.items() if path not in answers}
        pending = Pending(source, left, self._store)
        if not store_only:
            self._ask(pending)
        pending.give_up()
        self._note(pending)
        return answers | pending.answers

    def ahead(self, asked: Iterable[tuple[Source, Wanted]]) -> None:
        """Read what several labs will ask for: one batch a source, all sources at the same time.

        The answers are kept for `read`.
        """
        batches: dict[Source, Wanted] = {}
        for source, wanted in asked:
            # The same path with and without a blob id that is known: the one that is known.
            batch = batches.setdefault(source, {})
            batch |= {path: blob for path, blob in wanted.items() if blob or path not in batch}
        begun = [Pending(source, wanted, self._store) for source, wanted in batches.items()]
        slow = [pending for pending in begun if pending.wanted]
        if len(slow) > 1:
            from notelab.sources.in_time import all_of

            all_of([partial(self._ask, pending) for pending in slow])
        elif slow:
            self._ask(slow[0])
        for pending in begun:
            pending.give_up()
            self._note(pending)
            batch = batches[pending.source]
            self._answered[pending.source] = {
                (path, batch[path]): answer for path, answer in pending.answers.items()
            }

    def wheel(self, source: Source) -> Wheel:
        """Return which wheel the package index has for a source that names one.

        Raises:
            SourceError: the index has none, or can't be asked.
        """
        return self._published(source, lambda index: index.identity(source))

    def clone(self, source: Source) -> "GitCommand | None":
        """Return git, bound to the clone on disk of a source; None where it has none."""
        from notelab.sources.git.command import GitCommand
        from notelab.sources.git.mirror import git_dir_of

        mirror = self._clone_of(source)
        git_dir = git_dir_of(mirror) if mirror else None
        return GitCommand(git_dir) if git_dir else None

    def package(self, source: Source) -> "Package":
        """Return the release that a source's wheel is: installed here, or on the package index.

        Raises:
            SourceError: it is nowhere, or the index can't be asked.
        """
        from notelab.sources import installed

        found = installed.find(source)
        if not isinstance(found, str):
            return found
        return self._published(source, lambda index: index.package(source), f"{found}; ")

    def commit_of_wheel(self, source: Source) -> str:
        """Return the commit from which the source's wheel says that it was built.

        Raises:
            SourceError: it names none, there is no such wheel, or the index can't be asked.
        """
        return self._published(source, lambda index: index.built_from(source))

    def _published(self, source: Source, ask: "Callable[[Published], T]", before: str = "") -> T:
        if self._offline:
            raise SourceError(f"{before}the package index was not asked (--offline)")
        with told_if_slow(self._progress, f"{source.name}: asking for {source.wheel}"):
            return ask(self._remotes().published)

    def unknown_commit(self, source: Source) -> str:
        """Return who said, when asked by `read`, that it has no such commit as the pin, or ''.

        It is '' too where somebody else proved to have it: a mirror may be behind.
        """
        pin = (source.name, source.commit)
        return "" if pin in self._had else "; ".join(self._lacked.get(pin, []))

    def release_tag(self, source: Source) -> TagCommit | None:
        """Return which commit a source's release tag names; None where nobody here can tell.

        A clone on disk says it, or what the remote said when it was last asked. A remote is asked
        for nothing else than this only where its last answer disagrees with the pin.
        """
        if not source.release:
            return None
        git = self.clone(source)
        if git:
            from notelab.sources.git.ref import commit_of_tag

            commit = commit_of_tag(git, source.release, source.commit)
            if commit is not None:
                who = "this repository" if source.own else f"mirror {self._clone_of(source)}"
                return TagCommit(commit, who)
        if source.own:
            return None
        if self._made and (tag := self._made.known_tag(source)):
            return tag
        from notelab.sources.kept import Kept

        kept = Kept(self._store.root / "answers")
        tag = kept.get("tag", (source.url, source.release), TagCommit)
        if tag is None or tag.commit == source.commit:
            return tag
        last = msgspec.structs.replace(tag, who=f"{tag.who}, when it was last asked,")
        return last if self._offline else self._remotes().tag(source) or last

    def tags_at(self, source: Source) -> list[str]:
        """Return the tags that a clone on disk has at a source's pin."""
        from notelab.sources.git.ref import tags_at

        git = self.clone(source)
        return tags_at(git, source.commit) if git else []

    def resolve(self, source: Source, ref: str) -> str:
        """Return the commit id, 40 hex digits, that a tag, branch or commit names.

        Raises:
            SourceError: there is no such ref, its digits are ambiguous, or nobody could be asked.
        """
        from notelab.sources.git.ref import at_remote, check_ref, in_repository
        from notelab.sources.git.tree import shallowness

        check_ref(ref)
        mirror, git = self._clone_of(source), self.clone(source)
        if mirror and git is None:
            raise SourceError(f"{mirror} is no git repository")
        found = in_repository(git, ref, own=bool(source.own)) if git else None
        if found:
            return found
        deepen = shallowness(git) if git else ""
        if source.own:
            raise SourceError(
                f"{source.name}: this repository has no tag, branch or commit {ref!r}"
                + (f": {deepen}" if deepen else "")
            )
        asked = f"; the mirror {mirror} has no {ref!r}" if mirror else ""
        asked += f": {deepen}" if deepen else ""
        if self._offline:
            raise SourceError(f"{source.name}: {ref!r} can't be looked up offline{asked}")
        try:
            with told_if_slow(self._progress, f"{source.name}: asking {source.url} for {ref}"):
                commit = at_remote(self._remotes().git, source, ref)
        except SourceError as fault:
            hint = fault.hint or "a clone on disk will do as well: --mirror NAME=DIR"
            raise SourceError(f"{source.name}: {fault}{asked}", hint=hint) from None
        self._remotes().replace_tag(source.url, ref, commit)
        return commit

    def worktree(self, source: Source, directory: Path) -> None:
        """Lay the pinned tree out in `directory`, a clone to read; a no-op where it stands already.

        Raises:
            SourceError: the folder is in use or was changed, or nobody hands the whole tree over.
        """
        from notelab.sources.git import laying_out

        if not is_commit(source.commit):
            raise SourceError(f"{source.name} has no usable pin")
        if laying_out.already_there(source, directory):
            self._progress(f"{directory} is {source.name} at the pin already")
            return
        mirror = self._clone_of(source)
        what = f"{source.name}: laying {source.commit[:12]} out in {directory}"
        with told_if_slow(self._progress, what):
            laying_out.lay_out(source, directory, mirror, offline=self._offline)

    def _clone_of(self, source: Source) -> Path | None:
        """Return the clone on disk that stands for a source."""
        mirror = self._mirrors.get(source.name.lower().replace("_", "-"))
        return Path(source.own) if source.own else mirror

    def _ask(self, pending: Pending) -> None:
        source = pending.source
        mirror = self._clone_of(source)
        if mirror and pending.wanted:
            from notelab.sources.git.mirror import offer

            pending.take(f"mirror {mirror}", partial(offer, mirror, source, dict(pending.wanted)))
        if source.own:
            return
        if pending.wanted:
            from notelab.sources.installed import offer as installed

            pending.take("installed", partial(installed, source, dict(pending.wanted)))
        if self._offline:
            pending.doubt_all("git and the package index were not asked (--offline)")
        elif pending.wanted:
            wheel = f", and the package index for {source.wheel}" if source.wheel else ""
            files = f"{len(pending.wanted)} file{'s' if len(pending.wanted) > 1 else ''}"
            what = f"{source.name}: {files}: asking {source.url}{wheel}"
            with told_if_slow(self._progress, what):
                self._remotes().ask(pending)

    def _note(self, pending: Pending) -> None:
        """Keep what was said of the commit itself, and tell of trouble with the store."""
        pin = (pending.source.name, pending.source.commit)
        self._had |= {pin} if pending.showed_the_commit else set()
        said = self._lacked.setdefault(pin, [])
        said += [line for line in pending.lacks_the_commit if line not in said]
        self._tell(self._store.trouble)

    def _remotes(self) -> "Remotes":
        with self._making:
            if self._made is None:
                from notelab.sources.git.fetch import Remote
                from notelab.sources.index.published import Published
                from notelab.sources.kept import Kept
                from notelab.sources.remotes import Remotes

                kept = Kept(self._store.root / "answers", anew=self._anew)
                self._made = Remotes(Remote(self._store.root), Published(kept, self._tell), kept)
            return self._made

    def _tell(self, once: str) -> None:
        if once and once not in self._told:
            self._told.add(once)
            self._progress(once)
