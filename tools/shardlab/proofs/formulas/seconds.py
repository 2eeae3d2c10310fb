"""The time of a collective on a ring, by a model of latency and bandwidth.

T(S) = base + steps · hop + wire / bandwidth. Pages compare it with measurements; costlab fits
curves of several pieces.
"""

from shardlab.proofs.collective import Call

# Messages that follow one another over n ranks, a·n − b of them.
STEPS = {
    "all_reduce": (2, 2),
    "all_gather": (1, 1),
    "reduce_scatter": (1, 1),
    "all_to_all": (1, 1),
    "broadcast": (1, 1),
    "send": (0, -1),
}


def steps(op: str, ranks: int) -> int:
    """Return the number of messages that must be sent one after another."""
    factor, offset = STEPS[op]
    return factor * ranks - offset if ranks > 1 else 0


def seconds(call: Call, *, base: float, hop: float, bandwidth: float) -> float:
    """Return the seconds that a call takes.

    Args:
        call: the collective, its bytes and its ranks.
        base: seconds of any call.
        hop: seconds of a message, independent of its size.
        bandwidth: bytes that a rank sends in a second.

    """
    return base + steps(call.op, call.ranks) * hop + call.wire / bandwidth
