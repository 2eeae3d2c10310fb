"""Context parallelism: the traffic of attention over sharded sequences, and its memory on a rank.

The ring and the all-gather move the same number of bytes. Ulysses moves queries and outputs too,
but a rank sends each peer only 1/n of its tokens' heads. As n grows, a rank of the ring sends
nearly all keys and values of a sequence. A rank of Ulysses sends fewer and fewer bytes, as its
share of the tokens goes to zero.
"""

from shardlab.proofs.collective import Traffic, calls

COUNT = 8  # bytes of a number of tokens


def context_attention(
    kind: str, *, tokens: int, queries: int, keys: int, ranks: int, itemsize: int
) -> Traffic:
    """Return the traffic of one attention, forward and backward, on one rank.

    Args:
        kind: ring, all-gather or ulysses.
        tokens: S · B of whole sequences.
        queries: columns of the queries on a tensor rank, A · D.
        keys: columns of the keys, G · D; values have as many.
        ranks: n, along the context axis.
        itemsize: bytes of an element.
    """
    if ranks == 1:
        return Traffic()
    share = tokens // ranks * itemsize  # of a column
    if kind == "ulysses":
        once = calls("all_to_all", share * queries, ranks, 2)
        once = once + calls("all_to_all", share * keys, ranks, 2)
        return Traffic(once, once)
    block = 2 * share * keys
    if kind == "all-gather":
        gathered = calls("all_gather", ranks * block, ranks)
        return Traffic(gathered, gathered + calls("reduce_scatter", ranks * block, ranks))
    ends = [calls(end, block, 2, ranks - 1) for end in ("send", "recv")]
    return Traffic(ends[0] + ends[1], ends[0] + ends[1] + ends[0] + ends[1])


def mean_over_all_tokens(*, ranks: int) -> Traffic:
    """Return the traffic of one micro-batch's loss: the counted tokens, summed over the axis."""
    return Traffic(forward=calls("all_reduce", COUNT, ranks))


def saved_bytes(
    *, tokens: int, queries: int, keys: int, heads: int, ranks: int, itemsize: int
) -> int:
    """Return the bytes that one attention saves for backward, for every kind: 1/n of the whole.

    These are queries and outputs, keys and values, and a logsumexp for each head and token.

    Args:
        tokens, queries, keys, ranks, itemsize: as in `context_attention`.
        heads: A, the heads of a tensor rank.
    """
    bytes_per_token = (2 * queries + 2 * keys) * itemsize + heads * max(4, itemsize)
    return tokens // ranks * bytes_per_token


def max_blocks_held(kind: str, *, ranks: int, backward: bool = False) -> int:
    """Return the largest number of blocks of keys and values that a rank holds at once.

    A block is 2 · S/n · B · G · D elements. In backward, blocks' gradients are counted too. The
    ring's number doesn't grow with n: this rank's block, the previous one, the current one, one
    arriving; and the gradients of this rank's block, a new one and its copy, one leaving, one
    arriving.
    """
    if kind == "all-gather":
        return 3 * ranks + 2 if backward else ranks + 1
    return min(3 * ranks, 9) if backward else min(ranks, 4)
