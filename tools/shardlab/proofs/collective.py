"""The bytes that a rank sends for a collective, and a step's traffic as a count of calls."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

# (a, b): a rank sends payload · (a·n - b) / n bytes in the bandwidth-optimal algorithm, n ranks.
SENT = {
    "all_reduce": (2, 2),  # a reduce-scatter, then an all-gather
    "all_gather": (1, 1),
    "reduce_scatter": (1, 1),
    "all_to_all": (1, 1),
    "gather": (1, 1),
    "scatter": (1, 1),
    "broadcast": (1, 0),
    "reduce": (1, 0),
    "send": (1, 0),
    "recv": (0, 0),
    "barrier": (0, 0),
}


class Call(NamedTuple):
    """One collective, or one end of a point-to-point (`ranks` = 2).

    Attributes:
        op: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, recv, barrier
            (reduce, gather and scatter too, which only others use).
        payload: bytes as nccl-tests counts them: the reduced tensor, the whole gathered output, the
            whole input of a reduce-scatter or all-to-all (nccl-tests, doc/PERFORMANCE.md).
        ranks: how many take part.

    """

    op: str
    payload: int
    ranks: int

    @property
    def wire(self) -> float:
        """Bytes that one rank sends, on average over the ranks; a whole number where it is one."""
        if self.ranks == 1:
            return 0
        factor, offset = SENT[self.op]
        sent = self.payload * (factor * self.ranks - offset)
        return sent / self.ranks if sent % self.ranks else sent // self.ranks


def calls(op: str, payload: int, ranks: int, count: int = 1) -> "Counter[Call]":
    """Return `count` equal calls; none over one rank, which sends nothing."""
    return Counter({Call(op, payload, ranks): count}) if ranks > 1 and count else Counter()


@dataclass(frozen=True)
class Traffic:
    """A rank's collectives: in forward, in backward, and between backward and the optimizer."""

    forward: "Counter[Call]" = field(default_factory=Counter)
    backward: "Counter[Call]" = field(default_factory=Counter)
    step: "Counter[Call]" = field(default_factory=Counter)

    def __add__(self, traffic: "Traffic") -> "Traffic":
        """Return the sum of both."""
        return Traffic(
            self.forward + traffic.forward,
            self.backward + traffic.backward,
            self.step + traffic.step,
        )

    def __mul__(self, times: int) -> "Traffic":
        """Return this traffic multiplied by `times`."""
        return sum((self for _ in range(times)), Traffic())

    @property
    def all(self) -> "Counter[Call]":
        """All calls of the three phases."""
        return self.forward + self.backward + self.step

    @property
    def wire(self) -> float:
        """The bytes that one rank sends in total."""
        return sum(call.wire * count for call, count in self.all.items())
