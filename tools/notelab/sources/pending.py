"""A question under way: what is still wanted, and what was said so far."""

from collections.abc import Iterable

from notelab.sources.model import Absent, Found, Unreachable, Wanted

Answer = Found | Absent | Unreachable


class Pending:
    """What is still wanted of a source, and what was said so far about each path."""

    def __init__(self, wanted: Wanted) -> None:
        """Nobody has said anything yet."""
        self.wanted = dict(wanted)
        self.answers: dict[str, Answer] = {}
        self._reasons: dict[str, list[str]] = {path: [] for path in wanted}
        self._lacking: dict[str, list[str]] = {}
        self._disputes: dict[str, str] = {}

    def settle(self, path: str, answer: Answer) -> None:
        """Keep the answer; the path is wanted no longer."""
        self.answers[path] = answer
        del self.wanted[path]

    def doubt(self, path: str, reasons: Iterable[str]) -> None:
        """Keep why a provider didn't deliver."""
        self._reasons[path] += [one for one in reasons if one not in self._reasons[path]]

    def dispute(self, path: str, reason: str) -> None:
        """Keep that a provider has other bytes there than the lock says."""
        self._disputes.setdefault(path, reason)
        self.doubt(path, [reason])

    def lack(self, answer: Absent) -> None:
        """Keep that a provider, which holds only part of the repository, lacks the path."""
        self._lacking[answer.path] = answer.near
        self.doubt(answer.path, answer.reasons)

    def give_up(self) -> None:
        """Answer whatever is still wanted with what was said of it."""
        for path, blob in list(self.wanted.items()):
            reasons, near = self._reasons[path], self._lacking.get(path)
            if near and blob is None:
                self.settle(path, Absent(path, definite=False, near=near, reasons=reasons))
            else:
                self.settle(path, Unreachable(path, reasons, self._disputes.get(path, "")))
