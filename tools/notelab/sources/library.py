"""Asks several providers for the bytes of files at a pin, and checks them by their blob ids."""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from notelab.sources.answers import Source, SourceError, TagCommit, Wanted, Wheel, is_commit
from notelab.sources.batch import Answer, Batch
from notelab.sources.progress_if_slow import progress_if_slow
from notelab.sources.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from notelab.sources.git.command import GitCommand
    from notelab.sources.index.published import Published
    from notelab.sources.package import Package
    from notelab.sources.remotes import Remotes

T = TypeVar("T")


class Library:
    """Reads cited files from the store, a mirror, an installed wheel, git or the package index.

    Args:
        store: the files of earlier runs.
        mirrors: clones on disk by source name, in lower case and with hyphens.
        offline: ask no remote.
        refresh: ask remotes again, even those that failed some minutes ago.
        progress: called with a line for everything that takes longer than a second, and if the
            store can't be written.
    """

    def __init__(
        self,
        store: Store,
        mirrors: dict[str, Path],
        offline: bool = False,
        refresh: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Remember the providers; nothing is read yet."""
        self._store, self._mirrors, self._progress = store, mirrors, progress
        self._offline, self._refresh = offline, refresh
        self._opened_remotes: Remotes | None = None
        self._lock = threading.Lock()
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
        answers = {
            path: prefetched[path, blob]
            for path, blob in wanted.items()
            if (path, blob) in prefetched
        }
        wanted_now = {path: blob for path, blob in wanted.items() if path not in answers}
        batch = Batch(source, wanted_now, self._store)
        if not store_only:
            self._ask(batch)
        batch.give_up()
        self._record_outcome(batch)
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
        batches = [
            Batch(source, wanted, self._store) for source, wanted in wanted_by_source.items()
        ]
        unanswered = [batch for batch in batches if batch.wanted]
        if len(unanswered) > 1:
            from notelab.sources.timeouts import run_all

            run_all([partial(self._ask, batch) for batch in unanswered])
        elif unanswered:
            self._ask(unanswered[0])
        for batch in batches:
            batch.give_up()
            self._record_outcome(batch)
            merged = wanted_by_source[batch.source]
            self._prefetched[batch.source] = {
                (path, merged[path]): answer for path, answer in batch.answers.items()
            }

    def wheel(self, source: Source) -> Wheel:
        """Return the identity of the wheel that the package index has for a source.

        Raises:
            SourceError: the index has none or can't be asked.
        """
        return self._published(source, lambda index: index.identity(source))

    def clone(self, source: Source) -> "GitCommand | None":
        """Return git for the clone of a source on disk, or None if there is no clone."""
        from notelab.sources.git.command import GitCommand
        from notelab.sources.git.mirror import find_git_dir

        mirror = self._clone_of(source)
        git_dir = find_git_dir(mirror) if mirror else None
        return GitCommand(git_dir) if git_dir else None

    def package(self, source: Source) -> "Package":
        """Return the source's wheel as a package, installed here or on the package index.

        Raises:
            SourceError: there is none, or the index can't be asked.
        """
        from notelab.sources import installed

        installed_package = installed.find(source)
        if not isinstance(installed_package, str):
            return installed_package
        return self._published(
            source, lambda index: index.package(source), f"{installed_package}; "
        )

    def commit_of_wheel(self, source: Source) -> str:
        """Return the commit from which the source's wheel says that it was built.

        Raises:
            SourceError: it names none, there is no such wheel, or the index can't be asked.
        """
        return self._published(source, lambda index: index.built_from(source))

    def _published(self, source: Source, ask: "Callable[[Published], T]", before: str = "") -> T:
        if self._offline:
            raise SourceError(f"{before}the package index was not asked (--offline)")
        with progress_if_slow(self._progress, f"{source.name}: asking for {source.wheel}"):
            return ask(self._remotes().published)

    def unknown_commit(self, source: Source) -> str:
        """Return which providers answered `read` that the pin is no commit, or ''.

        The result is '' if another provider has the commit, because a mirror may be outdated.
        """
        pin = (source.name, source.commit)
        return "" if pin in self._confirmed_pins else "; ".join(self._denials.get(pin, []))

    def release_tag(self, source: Source) -> TagCommit | None:
        """Return the commit that a source's release tag names, or None if it isn't known here.

        A clone on disk knows it, or the remote answered it when files were last fetched. The remote
        is asked for the tag alone only if its last answer disagrees with the pin.
        """
        if not source.release:
            return None
        git = self.clone(source)
        if git:
            from notelab.sources.git.ref import commit_of_tag

            commit = commit_of_tag(git, source.release, source.commit)
            if commit is not None:
                who = (
                    "this repository"
                    if source.local_repository
                    else f"mirror {self._clone_of(source)}"
                )
                return TagCommit(commit, who)
        if source.local_repository:
            return None
        if self._opened_remotes and (tag := self._opened_remotes.tag_of_this_run(source)):
            return tag
        from notelab.sources.response_cache import ResponseCache

        cache = ResponseCache(self._store.root / "answers")
        tag = cache.get("tag", (source.url, source.release), TagCommit)
        if tag is None or tag.commit == source.commit:
            return tag
        last = msgspec.structs.replace(tag, who=f"{tag.who}, when it was last asked,")
        return last if self._offline else self._remotes().tag(source) or last

    def tags_at(self, source: Source) -> list[str]:
        """Return the tags at a source's pin in its clone on disk, if there is one."""
        from notelab.sources.git.ref import list_tags_at

        git = self.clone(source)
        return list_tags_at(git, source.commit) if git else []

    def resolve(self, source: Source, ref: str) -> str:
        """Return the commit id, 40 hex digits, that a tag, branch or commit names.

        Raises:
            SourceError: there is no such ref, its digits are ambiguous, or no repository could be
                asked.
        """
        from notelab.sources.git.ref import check_ref, resolve_at_remote, resolve_in_repository
        from notelab.sources.git.tree import explain_shallowness

        check_ref(ref)
        mirror, git = self._clone_of(source), self.clone(source)
        if mirror and git is None:
            raise SourceError(f"{mirror} is no git repository")
        resolved = (
            resolve_in_repository(git, ref, is_workbook=bool(source.local_repository))
            if git
            else None
        )
        if resolved:
            return resolved
        deepen = explain_shallowness(git) if git else ""
        if source.local_repository:
            raise SourceError(
                f"{source.name}: this repository has no tag, branch or commit {ref!r}"
                + (f": {deepen}" if deepen else "")
            )
        mirror_answer = f"; the mirror {mirror} has no {ref!r}" if mirror else ""
        mirror_answer += f": {deepen}" if deepen else ""
        if self._offline:
            raise SourceError(f"{source.name}: {ref!r} can't be looked up offline{mirror_answer}")
        try:
            with progress_if_slow(self._progress, f"{source.name}: asking {source.url} for {ref}"):
                commit = resolve_at_remote(self._remotes().git, source, ref)
        except SourceError as fault:
            hint = fault.hint or "a clone on disk works too: --mirror NAME=DIR"
            raise SourceError(f"{source.name}: {fault}{mirror_answer}", hint=hint) from None
        self._remotes().replace_tag(source.url, ref, commit)
        return commit

    def worktree(self, source: Source, directory: Path) -> None:
        """Check the pinned tree out into `directory`; do nothing if that was done before.

        Raises:
            SourceError: the folder is in use or was changed, or no provider has the whole tree.
        """
        from notelab.sources.git import checkout

        if not is_commit(source.commit):
            raise SourceError(f"{source.name} has no usable pin")
        if checkout.is_checked_out(source, directory):
            self._progress(f"{directory} already holds {source.name} at the pin")
            return
        mirror = self._clone_of(source)
        what = f"{source.name}: writing {source.commit[:12]} to {directory}"
        with progress_if_slow(self._progress, what):
            checkout.check_out(source, directory, mirror, offline=self._offline)

    def _clone_of(self, source: Source) -> Path | None:
        """Return the clone on disk from which a source is read."""
        mirror = self._mirrors.get(source.name.lower().replace("_", "-"))
        return Path(source.local_repository) if source.local_repository else mirror

    def _ask(self, batch: Batch) -> None:
        source = batch.source
        mirror = self._clone_of(source)
        if mirror and batch.wanted:
            from notelab.sources.git.mirror import offer

            batch.take(f"mirror {mirror}", partial(offer, mirror, source, dict(batch.wanted)))
        if source.local_repository:
            return
        if batch.wanted:
            from notelab.sources.installed import offer as installed

            batch.take("installed", partial(installed, source, dict(batch.wanted)))
        if self._offline:
            batch.add_reason("git and the package index were not asked (--offline)")
        elif batch.wanted:
            wheel = f", and the package index for {source.wheel}" if source.wheel else ""
            files = f"{len(batch.wanted)} file{'s' if len(batch.wanted) > 1 else ''}"
            what = f"{source.name}: {files}: asking {source.url}{wheel}"
            with progress_if_slow(self._progress, what):
                self._remotes().ask(batch)

    def _record_outcome(self, batch: Batch) -> None:
        """Remember what providers said about the commit, and report trouble with the store."""
        pin = (batch.source.name, batch.source.commit)
        self._confirmed_pins |= {pin} if batch.showed_the_commit else set()
        denials = self._denials.setdefault(pin, [])
        denials += [line for line in batch.lacks_the_commit if line not in denials]
        self._report_once(self._store.trouble)

    def _remotes(self) -> "Remotes":
        with self._lock:
            if self._opened_remotes is None:
                from notelab.sources.git.fetch import Remote
                from notelab.sources.index.published import Published
                from notelab.sources.remotes import Remotes
                from notelab.sources.response_cache import ResponseCache

                cache = ResponseCache(self._store.root / "answers", refresh=self._refresh)
                self._opened_remotes = Remotes(
                    Remote(self._store.root), Published(cache, self._report_once), cache
                )
            return self._opened_remotes

    def _report_once(self, text: str) -> None:
        if text and text not in self._reported:
            self._reported.add(text)
            self._progress(text)
