"""How long a collective takes on a ring: latency and bandwidth, nothing else.

T(S) = base + steps · hop + wire / bandwidth. What this machine measured stands beside it; what a
curve of several pieces says better is costlab's fit.
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
    """Return how many messages must follow one another."""
    ahead, behind = STEPS[op]
    return ahead * ranks - behind if ranks > 1 else 0


def seconds(call: Call, *, base: float, hop: float, bandwidth: float) -> float:
    """Return what a call takes.

    Args:
        call: which, of how many bytes, over how many ranks.
        base: seconds that any call costs.
        hop: seconds that a message costs, however small.
        bandwidth: bytes a second that a rank sends.

    """
    return base + steps(call.op, call.ranks) * hop + call.wire / bandwidth
