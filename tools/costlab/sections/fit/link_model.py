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

# Of each operation, among n ranks: one-way delays, one after another; the share that a rank sends.
_GLOO: dict[str, Callable[[int], tuple[int, Fraction]]] = {
    "all_reduce": lambda n: (4 * (n - 1), Fraction(2 * (n - 1), n)),
    "reduce_scatter": lambda n: (4 * (n - 1), Fraction(2 * (n - 1), n)),
    "all_gather": lambda n: (2 * (n - 1), Fraction(n - 1, n)),
    "all_to_all": lambda n: (2, Fraction(n - 1, n)),
    "send_recv": lambda n: (2, Fraction(1)),
}


def delays(link: str, operation: str, ranks: int) -> int | None:
    """Return how many one-way delays a small call takes, one after another; None if not known."""
    return _GLOO[operation](ranks)[0] if link == "gloo" and operation in _GLOO else None


def carried(link: str, operation: str, ranks: int) -> Fraction | None:
    """Return what each rank sends, as a share of the operation's size; None if not known.

    For all but reduce_scatter it is what the bandwidth-optimal algorithm asks for.
    """
    return _GLOO[operation](ranks)[1] if link == "gloo" and operation in _GLOO else None
