"""Experts: the traffic of a layer of experts over the joint axis of expert tensor × expert.

The number of rows that an all-to-all sends depends on the router's choices, so `sent` and
`received` are arguments. If no row is dropped, a rank sends K rows a token to each rank of an
expert, and receives as many if the load is even. A `Call`'s wire is an average over ranks, here
too, where the ranks differ.

With K experts a token on n ranks, an all-to-all sends K rows where an all-gather sends n: fewer
bytes while K < n, but one more collective.
"""

from collections import Counter

from shardlab.proofs.collective import Call, Traffic, calls

COUNT = 8  # bytes of a number of rows


def all_to_all_experts(
    *, sent: int, received: int, hidden: int, itemsize: int, prob: int, experts: int,
    copies: int = 1, ranks: int, even: bool = False,
) -> Traffic:  # fmt: skip
    """Return the traffic of an all-to-all of rows, with their probabilities, to experts' ranks.

    Args:
        sent: rows that this rank sends to all ranks, itself included: K rows a token, to each of
            the `copies` ranks that share an expert.
        received: rows that arrive.
        hidden: columns of a row.
        itemsize: bytes of an element of a row.
        prob: bytes of a probability.
        experts: E, the experts of all ranks.
        copies: ranks that share an expert.
        ranks: ranks along the joint axis.
        even: rows are padded to a capacity, so the ranks need not exchange their numbers of rows.
    """
    row, with_prob = hidden * itemsize, hidden * itemsize + prob
    numbers = calls("all_to_all", experts * copies * COUNT, ranks, int(not even))
    dispatch, combine = (
        calls("all_to_all", n * b, ranks) for n, b in ((sent, with_prob), (received, row))
    )
    forward = numbers + dispatch + combine
    dispatch, combine = (
        calls("all_to_all", n * b, ranks) for n, b in ((sent, row), (received, with_prob))
    )
    return Traffic(forward, dispatch + combine)


def all_gather_experts(
    *, tokens: int, hidden: int, itemsize: int, prob: int, experts: int, ranks: int
) -> Traffic:
    """Return the traffic if every rank gets all rows, each with a probability for each expert.

    In backward, gradients of probabilities that are wider than a row's elements need a
    reduce-scatter of their own, because their bits can't be summed as elements of a row.

    Args:
        tokens: T, this rank's tokens.
        hidden, itemsize, prob, experts, ranks: as in `all_to_all_experts`.
    """
    rows = ranks * tokens
    row, with_probs = hidden * itemsize, hidden * itemsize + experts * prob
    combine_bytes = [with_probs] if prob == itemsize else [row, experts * prob]
    summed = sum((calls("reduce_scatter", rows * n, ranks) for n in combine_bytes), Counter[Call]())
    return Traffic(
        calls("all_gather", rows * with_probs, ranks) + calls("reduce_scatter", rows * row, ranks),
        calls("all_gather", rows * row, ranks) + summed,
    )
