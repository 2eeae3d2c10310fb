"""Asks the git host and the package index at the same time."""

from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from notelab.sources.answers import (
    Answers,
    Offered,
    Source,
    SourceError,
    TagCommit,
    UnknownCommitError,
)
from notelab.sources.batch import Batch
from notelab.sources.git.fetch import Remote, host_of
from notelab.sources.index.published import Published
from notelab.sources.response_cache import ResponseCache
from notelab.sources.timeouts import start


class Remotes:
    """Asks the git host and the package index at the same time.

    Only git proves that the commit holds a file whose blob id is unknown, so git is awaited for
    such a file. A file whose blob id the lock records comes from whichever answers first. A host
    that doesn't answer is therefore awaited only if the index lacks the file, and then once in
    some minutes.
    """

    def __init__(self, git: Remote, published: Published, cache: ResponseCache) -> None:
        """Remember both providers; nothing is asked yet."""
        self.git, self.published, self._cache = git, published, cache

    def ask(self, batch: Batch) -> None:
        """Ask for the files that are still wanted."""
        source, take = batch.source, batch.take
        failure = self._cache.get_failure("git", source.url, source.commit)
        is_local = not failure and self._is_local(source)
        if is_local:
            take("git", lambda: self.git.offer(source, dict(batch.wanted)))
            self._keep_tag(source)
        if not batch.wanted:
            return
        wanted = dict(batch.wanted)
        wheel = start(lambda: self.published.offer(source, wanted))
        if failure:
            batch.add_reason(f"git: {failure}")
        elif not is_local:
            host = start(lambda: self.git.probe(source.url))
            both: list[Future[Any]] = [wheel, host]
            wait(both, return_when=FIRST_COMPLETED)
            if wheel.done() and not wheel.exception():
                take("wheel", lambda: _select_proved(wheel.result(), batch))
            if batch.wanted:
                take("git", lambda: self._from_git(batch, host))
        if batch.wanted:
            take("wheel", lambda: _select_wanted(wheel.result(), batch))

    def _is_local(self, source: Source) -> bool:
        try:
            return self.git.is_available_offline(source)
        except SourceError:
            return False

    def _from_git(self, batch: Batch, host: "Future[None]") -> Answers:
        source = batch.source
        whom = ("git", source.url, source.commit)
        try:
            host.result()
            answers = self.git.offer(source, dict(batch.wanted))
        except UnknownCommitError:
            raise
        except SourceError as fault:
            self._cache.put_failure(str(fault), *whom)
            raise
        self._cache.put_failure("", *whom)
        self._keep_tag(source)
        return answers

    def tag(self, source: Source) -> TagCommit | None:
        """Ask the git host which commit the source's release tag names; None if it fails."""
        whom = ("git", source.url, source.commit)
        if self._cache.get_failure(*whom):
            return None
        try:
            self.git.ask_for_tag(source)
        except SourceError as fault:
            self._cache.put_failure(str(fault), *whom)
            return None
        return self._keep_tag(source)

    def tag_of_this_run(self, source: Source) -> TagCommit | None:
        """Return what the git host answered in this run for the source's release tag."""
        commit = self.git.tags.get((source.url, source.release or ""))
        return None if commit is None else TagCommit(commit, f"git {host_of(source.url)}")

    def replace_tag(self, url: str, name: str, commit: str) -> None:
        """Cache the commit that a tag names now, if an earlier answer is cached."""
        if self._cache.get("tag", (url, name), TagCommit) is not None:
            self._cache.put("tag", (url, name), TagCommit(commit, f"git {host_of(url)}"))

    def _keep_tag(self, source: Source) -> TagCommit | None:
        """Cache what the git host answered for the source's release tag, if it was asked."""
        tag = self.tag_of_this_run(source)
        if tag:
            self._cache.put("tag", (source.url, source.release or ""), tag)
        return tag


def _select_proved(answers: Answers, batch: Batch) -> Answers:
    """Return the answers that their blob ids prove."""
    return {
        path: answer
        for path, answer in _select_wanted(answers, batch).items()
        if batch.wanted[path] and isinstance(answer, Offered)
    }


def _select_wanted(answers: Answers, batch: Batch) -> Answers:
    return {path: answer for path, answer in answers.items() if path in batch.wanted}
