"""The git host and the package index, asked at the same time."""

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
from notelab.sources.git.fetch import Remote, host_of
from notelab.sources.in_time import begin
from notelab.sources.index.published import Published
from notelab.sources.kept import Kept
from notelab.sources.pending import Pending


class Remotes:
    """The git host and the package index, asked at the same time.

    git's answer names the commit, so for a file that nobody knows yet it is awaited; for one
    whose blob id the lock knows, whoever has it first will do. So a host that doesn't answer is
    waited for only where nobody else has the file, and then once in some minutes.
    """

    def __init__(self, git: Remote, published: Published, kept: Kept) -> None:
        """Nothing is asked yet."""
        self.git, self.published, self._kept = git, published, kept

    def ask(self, pending: Pending) -> None:
        """Ask for what is pending."""
        source, take = pending.source, pending.take
        no = self._kept.refusal("git", source.url, source.commit)
        near = not no and self._near(source)
        if near:
            take("git", lambda: self.git.offer(source, dict(pending.wanted)))
            self._keep_tag(source)
        if not pending.wanted:
            return
        asked = dict(pending.wanted)
        wheel = begin(lambda: self.published.offer(source, asked))
        if no:
            pending.doubt_all(f"git: {no}")
        elif not near:
            host = begin(lambda: self.git.reach(source.url))
            both: list[Future[Any]] = [wheel, host]
            wait(both, return_when=FIRST_COMPLETED)
            if wheel.done() and not wheel.exception():
                take("wheel", lambda: _sure(wheel.result(), pending))
            if pending.wanted:
                take("git", lambda: self._from_git(pending, host))
        if pending.wanted:
            take("wheel", lambda: _open(wheel.result(), pending))

    def _near(self, source: Source) -> bool:
        try:
            return self.git.at_hand(source)
        except SourceError:
            return False

    def _from_git(self, pending: Pending, host: "Future[None]") -> Answers:
        source = pending.source
        whom = ("git", source.url, source.commit)
        try:
            host.result()
            answers = self.git.offer(source, dict(pending.wanted))
        except UnknownCommitError:
            raise
        except SourceError as fault:
            self._kept.refuse(str(fault), *whom)
            raise
        self._kept.refuse("", *whom)
        self._keep_tag(source)
        return answers

    def tag(self, source: Source) -> TagCommit | None:
        """Ask the git host which commit the source's release tag names; None where it can't be."""
        whom = ("git", source.url, source.commit)
        if self._kept.refusal(*whom):
            return None
        try:
            self.git.ask_for_tag(source)
        except SourceError as fault:
            self._kept.refuse(str(fault), *whom)
            return None
        return self._keep_tag(source)

    def known_tag(self, source: Source) -> TagCommit | None:
        """Return what the git host said in this run of the source's release tag."""
        commit = self.git.tags.get((source.url, source.release or ""))
        return None if commit is None else TagCommit(commit, f"git {host_of(source.url)}")

    def replace_tag(self, url: str, name: str, commit: str) -> None:
        """Keep the commit that a tag names now, where another was kept before."""
        if self._kept.get("tag", (url, name), TagCommit) is not None:
            self._kept.put("tag", (url, name), TagCommit(commit, f"git {host_of(url)}"))

    def _keep_tag(self, source: Source) -> TagCommit | None:
        """Keep what the git host said, if it was asked, of the source's release tag."""
        tag = self.known_tag(source)
        if tag:
            self._kept.put("tag", (source.url, source.release or ""), tag)
        return tag


def _sure(answers: Answers, pending: Pending) -> Answers:
    """Return what needs nobody's word but the bytes' own."""
    return {
        path: answer
        for path, answer in _open(answers, pending).items()
        if pending.wanted[path] and isinstance(answer, Offered)
    }


def _open(answers: Answers, pending: Pending) -> Answers:
    return {path: answer for path, answer in answers.items() if path in pending.wanted}
