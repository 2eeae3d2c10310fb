"""Experts: what a layer of them sends over the joint axis of expert tensor × expert.

How many rows cross all-to-all depends on the choices, so `sent` and `came` are given: where none is
dropped, a rank sends K rows a token to each rank of an expert, and what comes is as much if the
load is even. A `Call`'s wire is an average over ranks, also here, where they differ.

With K experts a token on n ranks, all-to-all asks for K rows where all-gather asks for n: for fewer
bytes while K < n, in one collective more.
"""

from shardlab.proofs.collective import Traffic, calls

COUNT = 8  # bytes of a number of rows


def all_to_all_experts(
    *, sent: int, came: int, hidden: int, itemsize: int, prob: int, experts: int, copies: int = 1,
    ranks: int, even: bool = False,
) -> Traffic:  # fmt: skip
    """Rows go to the ranks of their experts; each brings its probability, and backward its.

    Args:
        sent: rows that leave this rank for any, itself too: of K experts a token, to each of the
            `copies` ranks that share one.
        came: rows that arrive.
        hidden: columns of a row.
        itemsize: bytes of an element of a row.
        prob: bytes of a probability.
        experts: E, all together.
        copies: ranks that share an expert.
        ranks: along the joint axis.
        even: padded to a capacity, so that nobody asks how many rows come.
    """
    row, with_prob = hidden * itemsize, hidden * itemsize + prob
    numbers = calls("all_to_all", experts * copies * COUNT, ranks, int(not even))
    there, home = (calls("all_to_all", n * b, ranks) for n, b in ((sent, with_prob), (came, row)))
    forward = numbers + there + home
    there, home = (calls("all_to_all", n * b, ranks) for n, b in ((sent, row), (came, with_prob)))
    return Traffic(forward, there + home)


def all_gather_experts(
    *, tokens: int, hidden: int, itemsize: int, prob: int, experts: int, ranks: int
) -> Traffic:
    """Every rank gets all rows, each with a number for each expert; sums come home.

    Args:
        tokens: T of this rank.
        hidden, itemsize, prob, experts, ranks: as above.
    """
    rows = ranks * tokens
    row, with_probs = hidden * itemsize, hidden * itemsize + experts * prob
    return Traffic(
        calls("all_gather", rows * with_probs, ranks) + calls("reduce_scatter", rows * row, ranks),
        calls("all_gather", rows * row, ranks) + calls("reduce_scatter", rows * with_probs, ranks),
    )
