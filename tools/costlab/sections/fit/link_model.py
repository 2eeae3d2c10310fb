"""What gloo's collectives make a network do: how many delays one after another, how many bytes.

A formula says what an algorithm asks for; this says what this implementation, torch's gloo, does
with it. Its ring passes pieces on 2(n-1) times for an all-reduce, and every message waits for word
that it is expected, so a step costs two one-way delays where a textbook's costs one. Its
reduce-scatter is that same ring with most of the result thrown away.

tests/costlab/network holds every entry against ranks in network namespaces, by their interfaces'
counters and over a wire of known delay.
"""

from collections.abc import Callable
from fractions import Fraction

_DELAYS: dict[str, Callable[[int], int]] = {
    "all_reduce": lambda n: 4 * (n - 1),
    "reduce_scatter": lambda n: 4 * (n - 1),
    "all_gather": lambda n: 2 * (n - 1),
    "all_to_all": lambda n: 2,
    "send_recv": lambda n: 2,
}
_CARRIED: dict[str, Callable[[int], Fraction]] = {
    "all_reduce": lambda n: Fraction(2 * (n - 1), n),
    "reduce_scatter": lambda n: Fraction(2 * (n - 1), n),
    "all_gather": lambda n: Fraction(n - 1, n),
    "all_to_all": lambda n: Fraction(n - 1, n),
    "send_recv": lambda n: Fraction(1),
}


def delays(link: str, operation: str, ranks: int) -> int | None:
    """Return how many one-way delays a small call takes, one after another; None if not known."""
    return _DELAYS[operation](ranks) if link == "gloo" and operation in _DELAYS else None


def carried(link: str, operation: str, ranks: int) -> Fraction | None:
    """Return what each rank sends, as a share of the operation's size; None if not known.

    For all but reduce_scatter it is what the bandwidth-optimal algorithm asks for.
    """
    return _CARRIED[operation](ranks) if link == "gloo" and operation in _CARRIED else None
