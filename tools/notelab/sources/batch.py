"""One batch of files asked of a source: what is still wanted, and the answers so far."""

import re
from collections.abc import Callable
from contextlib import suppress

from notelab.sources.answers import (
    Absent,
    Answers,
    FoundFile,
    Offered,
    Refused,
    Source,
    SourceError,
    UnknownCommitError,
    Unreachable,
    Wanted,
    is_commit,
)
from notelab.sources.store import Store, blob_id

Answer = FoundFile | Absent | Unreachable
Ask = Callable[[Wanted], Answers]
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")


class Batch:
    """The files that are still wanted of a source, and the answers and reasons for each path.

    `showed_the_commit` says whether a provider proved to have the pinned commit;
    `lacks_the_commit` lists the answers of those that say that it doesn't exist.
    """

    def __init__(self, source: Source, wanted: Wanted, store: Store) -> None:
        """Answer paths that need no provider: those in the store and those that are invalid."""
        self.source, self._store = source, store
        self.wanted = dict(wanted)
        self.answers: dict[str, Answer] = {}
        self.showed_the_commit = False
        self.lacks_the_commit: list[str] = []
        self._reasons: dict[str, list[str]] = {path: [] for path in wanted}
        self._lacking: dict[str, list[str]] = {}
        self._disputes: dict[str, str] = {}
        for path, blob in wanted.items():
            problem = _path_problem(path)
            if problem:
                self._settle(path, Absent(path, definite=True, reasons=[problem]))
            elif blob and (data := store.get(blob)) is not None:
                self._settle(path, FoundFile(path, blob, data, "wheel", "store"))
            elif blob is not None and not is_commit(blob):
                self._settle(path, Unreachable(path, [f"the lock's id {blob[:50]!r} is no id"]))
            elif not is_commit(source.commit):
                self._settle(path, Unreachable(path, [f"{source.name} has no usable pin"]))

    def take(self, who: str, ask: Ask) -> None:
        """Take a provider's answers, each only if its bytes are right; if it fails, its reason."""
        try:
            answers = ask(dict(self.wanted)) if self.wanted else {}
        except (SourceError, OSError) as fault:
            line = " ".join(f"{who}: {fault}".split())
            if isinstance(fault, UnknownCommitError):
                self.lacks_the_commit.append(line)
            self.add_reason(line)
            return
        for path, answer in answers.items():
            if isinstance(answer, Refused):
                self._add_reason(path, answer.reason)
                if answer.final:
                    self._settle(path, Unreachable(path, [answer.reason]))
            elif isinstance(answer, Absent) and answer.definite:
                self.showed_the_commit = True
                self._settle(path, answer)
            elif isinstance(answer, Absent):
                self._lacking[path] = answer.suggestions
                for reason in answer.reasons:
                    self._add_reason(path, reason)
            else:
                self.showed_the_commit |= answer.proof is not None
                self._judge(who, path, answer)

    def take_known(self, who: str, ask: Ask) -> None:
        """Take the files whose blob ids are known; why others are missing, `take` reports later."""
        files: Wanted = {path: blob for path, blob in self.wanted.items() if blob}
        with suppress(SourceError, OSError):
            for path, answer in (ask(files) if files else {}).items():
                if isinstance(answer, Offered):
                    self._judge(who, path, answer)

    def add_reason(self, reason: str) -> None:
        """Record why a provider delivered nothing, for every path that is still wanted."""
        for path in self.wanted:
            self._add_reason(path, reason)

    def give_up(self) -> None:
        """Answer every path that is still wanted with the reasons that were collected."""
        for path, blob in list(self.wanted.items()):
            reasons, suggestions = self._reasons[path], self._lacking.get(path)
            if suggestions is not None and blob is None:
                absent = Absent(path, definite=False, suggestions=suggestions, reasons=reasons)
                self._settle(path, absent)
            else:
                self._settle(path, Unreachable(path, reasons, self._disputes.get(path, "")))

    def _judge(self, who: str, path: str, offered: Offered) -> None:
        expected = self.wanted[path]
        blob = blob_id(offered.data)
        if expected is not None and blob != expected:
            reason = f"{who}: has blob {blob}, the lock has {expected}"
            self._disputes.setdefault(path, reason)
            self._add_reason(path, reason)
        elif expected is None and offered.proof is None:
            reason = f"{who}: names no commit, so it proves only files that the lock knows"
            self._add_reason(path, reason)
        else:
            self._store.put(offered.data)
            self._settle(path, FoundFile(path, blob, offered.data, offered.proof or "wheel", who))

    def _settle(self, path: str, answer: Answer) -> None:
        self.answers[path] = answer
        del self.wanted[path]

    def _add_reason(self, path: str, reason: str) -> None:
        if reason not in self._reasons[path]:
            self._reasons[path].append(reason)


def _path_problem(path: str) -> str:
    """Return why `path` can't name a file of a repository, or ''."""
    if not path or len(path) > 1024 or _CONTROL.search(path):
        return "the path is empty, too long, or holds a backslash or a control character"
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in path.split("/")):
        return "the path must lead from the repository's root straight to a file"
    return ""
