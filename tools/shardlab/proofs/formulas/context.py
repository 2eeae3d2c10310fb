"""Context parallelism: what attention over cut sequences sends, and what a rank holds for it.

The ring and the all-gather move the same bytes. Ulysses moves queries and outputs too, but each
rank a part 1/n of what it has: as n grows, the ring's share of a sequence's keys and values goes to
all of them, and what a rank sends by Ulysses goes to zero with its tokens.
"""

from shardlab.proofs.collective import Traffic, calls

COUNT = 8  # bytes of a number of tokens


def context_attention(
    kind: str, *, tokens: int, queries: int, keys: int, ranks: int, itemsize: int
) -> Traffic:
    """One attention, forward and backward, of one rank.

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
    """The loss of one micro-batch: how many tokens count, summed over the context axis."""
    return Traffic(forward=calls("all_reduce", COUNT, ranks))


def kept(*, tokens: int, queries: int, keys: int, heads: int, ranks: int, itemsize: int) -> int:
    """Return the bytes that one attention keeps for backward, whatever the kind: 1/n of the whole.

    Queries and outputs, keys and values, and a logsumexp for each head and token.

    Args:
        tokens, queries, keys, ranks, itemsize: as above.
        heads: A, of a tensor rank.
    """
    each = (2 * queries + 2 * keys) * itemsize + heads * max(4, itemsize)
    return tokens // ranks * each


def blocks_held(kind: str, *, ranks: int, backward: bool = False) -> int:
    """Return how many ranks' blocks of keys and values a rank holds at once, at most.

    A block is 2 · S/n · B · G · D elements; in backward gradients of blocks are counted as such.
    The ring's number doesn't grow with n: its own block, the last, the one at work, one arriving;
    and of gradients its own, one made and its copy, one leaving, one arriving.
    """
    if kind == "all-gather":
        return 3 * ranks + 2 if backward else ranks + 1
    return min(3 * ranks, 9) if backward else min(ranks, 4)
