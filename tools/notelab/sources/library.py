"""Asks one provider after another for the bytes of files at a pin, and checks their blob ids."""

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import msgspec

from notelab.lines import split_lines
from notelab.sources.answers import WORKTREE, Source, SourceError, TagCommit, Wanted, Wheel
from notelab.sources.batch import Answer, Batch
from notelab.sources.store import Store
from notelab.sources.timeouts import progress_if_slow, run_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.sources.git.fetch import Remote
    from notelab.sources.git.git_command import GitCommand
    from notelab.sources.index.published import Published
    from notelab.sources.package import Package

T = TypeVar("T")


class Library:
    """Reads cited files from the store, a mirror, an installed wheel, git or the package index.

    Args:
        store: the files and answers of earlier runs.
        mirrors: clones on disk by source name, in lower case and with hyphens.
        offline: ask no remote.
        progress: called with a line for everything that takes longer than a second, and if the
            store can't be written.
    """

    def __init__(
        self,
        store: Store,
        mirrors: dict[str, Path],
        offline: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Remember the providers; nothing is read yet."""
        self._store, self._mirrors, self._progress = store, mirrors, progress
        self._offline = offline
        self._reported: set[str] = set()
        self._confirmed_pins: set[tuple[str, str]] = set()
        self._denials: dict[tuple[str, str], list[str]] = {}
        self._prefetched: dict[Source, dict[tuple[str, str | None], Answer]] = {}

    def read(
        self, source: Source, wanted: Wanted, *, store_only: bool = False
    ) -> dict[str, Answer]:
        """Return for each path its bytes at the pin, or that there is no such file, or reasons.

        Args:
            source: the repository and its pin.
            wanted: each path with the blob id that the lock has for it, or None.
            store_only: ask only the store.
        """
        prefetched = {} if store_only else self._prefetched.get(source, {})
        answers = {key[0]: prefetched[key] for key in wanted.items() if key in prefetched}
        missing = {path: blob for path, blob in wanted.items() if path not in answers}
        batch = Batch(source, missing, self._store)
        if not store_only:
            self._ask(batch)
        self._finish(batch)
        return answers | batch.answers

    def prefetch(self, questions: Iterable[tuple[Source, Wanted]]) -> None:
        """Read what several labs will ask for: one batch per source, all sources at the same time.

        `read` returns these answers later.
        """
        wanted_by_source: dict[Source, Wanted] = {}
        for source, wanted in questions:
            # If one lab knows the blob id of a path and another doesn't, the known one is used.
            merged = wanted_by_source.setdefault(source, {})
            merged |= {path: blob for path, blob in wanted.items() if blob or path not in merged}
        batches = [Batch(source, each, self._store) for source, each in wanted_by_source.items()]
        if any(batch.wanted for batch in batches):
            _ = self._git, self._index  # made once, before the threads ask for them
            run_all([partial(self._ask, batch) for batch in batches if batch.wanted])
        for batch in batches:
            self._finish(batch)
            merged = wanted_by_source[batch.source]
            self._prefetched[batch.source] = {
                (path, merged[path]): answer for path, answer in batch.answers.items()
            }

    def _ask(self, batch: Batch) -> None:
        """Ask the providers in order, each for the files that no provider before it delivered."""
        source = batch.source
        if source.commit == WORKTREE:
            from notelab.sources.git.git_files import offer_from_worktree

            root = Path(source.local_repository)
            batch.take("the working tree", partial(offer_from_worktree, root))
            return
        if batch.wanted and (mirror := self._clone_of(source)):
            from notelab.sources.git.git_files import offer_from_mirror

            batch.take(f"mirror {mirror}", partial(offer_from_mirror, mirror, source))
        if not batch.wanted or source.local_repository:
            return
        from notelab.sources.package import offer_installed

        batch.take("installed", partial(offer_installed, source))
        if self._offline:
            batch.add_reason("git and the package index were not asked (--offline)")
        elif batch.wanted:
            files = f"{len(batch.wanted)} file{'s' if len(batch.wanted) > 1 else ''}"
            wheel = f", and the package index for {source.wheel}" if source.wheel else ""
            what = f"{source.name}: {files}: asking {source.url}{wheel}"
            with progress_if_slow(self._progress, what):
                self._ask_remotes(batch)

    def _ask_remotes(self, batch: Batch) -> None:
        git = partial(self._git.offer, batch.source)
        index = partial(self._index.offer, batch.source)
        if not self._git.has(batch.source):
            # Of a known file any copy will do, so a git host that doesn't answer isn't awaited.
            batch.take_known("wheel", index)
        batch.take("git", git)  # only git names the commit of the other files
        batch.take("wheel", index)

    def _finish(self, batch: Batch) -> None:
        """Remember what providers said about the commit, and report trouble with the store."""
        batch.give_up()
        pin = (batch.source.name, batch.source.commit)
        self._confirmed_pins |= {pin} if batch.showed_the_commit else set()
        denials = self._denials.setdefault(pin, [])
        denials += [line for line in batch.lacks_the_commit if line not in denials]
        self._report_once(self._store.trouble)

    def unknown_commit(self, source: Source) -> str:
        """Return which providers answered `read` that the pin is no commit, or ''.

        The result is '' if another provider has the commit, because a mirror may be outdated.
        """
        pin = (source.name, source.commit)
        return "" if pin in self._confirmed_pins else "; ".join(self._denials.get(pin, []))

    def wheel(self, source: Source) -> Wheel:
        """Return the identity of the source's wheel on the index, or raise SourceError."""
        return self._ask_index(source, lambda index: index.identity(source))

    def commit_of_wheel(self, source: Source) -> str:
        """Return the commit from which the source's wheel says that it was built.

        Raises:
            SourceError: it names none, there is no such wheel, or the index can't be asked.
        """
        return self._ask_index(source, lambda index: index.built_from(source))

    def package(self, source: Source) -> "Package":
        """Return the source's wheel as a package, installed here or on the package index.

        Raises:
            SourceError: there is none, or the index can't be asked.
        """
        from notelab.sources.package import find_installed

        installed = find_installed(source)
        if not isinstance(installed, str):
            return installed
        return self._ask_index(source, lambda index: index.package(source), f"{installed}; ")

    def _ask_index(self, source: Source, ask: "Callable[[Published], T]", before: str = "") -> T:
        if self._offline:
            raise SourceError(f"{before}the package index was not asked (--offline)")
        with progress_if_slow(self._progress, f"{source.name}: asking for {source.wheel}"):
            return ask(self._index)

    def clone(self, source: Source) -> "GitCommand | None":
        """Return git for the clone of a source on disk, or None if there is no clone."""
        if mirror := self._clone_of(source):
            from notelab.sources.git.git_command import open_clone

            return open_clone(mirror)
        return None

    def find_definitions(self, source: Source, name: str) -> list[str]:
        """Return the files that define a name, in a clone on disk or in the installed package."""
        from notelab.sources.package import find_in_package, find_in_tree, find_installed

        what = f"{source.name}: looking for {name}"
        with progress_if_slow(self._progress, what):
            git = self.clone(source)
            if git and (paths := find_in_tree(git, source.commit, name)):
                return paths
            installed = find_installed(source) if source.wheel else ""
            return [] if isinstance(installed, str) else find_in_package(installed, name)

    def list_names(self, source: Source) -> list[str]:
        """Return the paths of a source that a clone on disk, or the working tree, has."""
        from notelab.sources.git.git_files import list_names, list_worktree

        if source.commit == WORKTREE:
            return list_worktree(Path(source.local_repository))
        git = self.clone(source)
        return list_names(git, source.commit) if git else []

    def tags_at(self, source: Source) -> list[str]:
        """Return the tags at a source's pin in its clone on disk, if there is one."""
        git = self.clone(source)
        return split_lines(git.run("tag", "--points-at", source.commit).text) if git else []

    def release_tag(self, source: Source) -> TagCommit | None:
        """Return the commit that a source's release tag names, or None if it isn't known here.

        A clone on disk knows it, or the remote answered it when files were last fetched. The remote
        is asked for the tag alone only if its last answer disagrees with the pin.
        """
        if not source.release:
            return None
        if git := self.clone(source):
            from notelab.sources.git.ref import commit_of_tag

            commit = commit_of_tag(git, source.release, source.commit)
            if commit is not None:
                clone = f"mirror {self._clone_of(source)}"
                return TagCommit(commit, "this repository" if source.local_repository else clone)
        if source.local_repository:
            return None
        tag = self._store.get_answer("tag", TagCommit, source.url, source.release)
        if tag is None or tag.commit == source.commit:
            return tag
        last = msgspec.structs.replace(tag, who=f"{tag.who}, when it was last asked,")
        return last if self._offline else self._git.tag(source) or last

    def resolve(self, source: Source, ref: str) -> str:
        """Return the commit id, 40 hex digits, that a tag, branch or commit names.

        Raises:
            SourceError: there is no such ref, its digits are ambiguous, or no repository could be
                asked.
        """
        from notelab.sources.git.ref import resolve

        remote = None if self._offline else self._git
        return resolve(source, ref, self._clone_of(source), remote, self._progress)

    def worktree(self, source: Source, directory: Path) -> None:
        """Check the pinned tree out into `directory`; do nothing if that was done before.

        Raises:
            SourceError: the folder is in use or was changed, or no provider has the whole tree.
        """
        from notelab.sources.git.checkout import check_out

        what = f"{source.name}: writing {source.commit[:12]} to {directory}"
        with progress_if_slow(self._progress, what):
            if not check_out(source, directory, self._clone_of(source), offline=self._offline):
                self._progress(f"{directory} already holds {source.name} at the pin")

    def _clone_of(self, source: Source) -> Path | None:
        """Return the clone on disk from which a source is read."""
        mirror = self._mirrors.get(source.name.lower().replace("_", "-"))
        return Path(source.local_repository) if source.local_repository else mirror

    @cached_property
    def _git(self) -> "Remote":
        from notelab.sources.git.fetch import Remote

        return Remote(self._store)

    @cached_property
    def _index(self) -> "Published":
        from notelab.sources.index.published import Published

        return Published(self._store, self._report_once)

    def _report_once(self, text: str) -> None:
        if text and text not in self._reported:
            self._reported.add(text)
            self._progress(text)
