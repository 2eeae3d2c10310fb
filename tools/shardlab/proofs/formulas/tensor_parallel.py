"""Tensor parallelism: what the layers of a transformer send over the tensor axis.

`tokens` are all tokens of a micro-batch, S · B, whether or not the sequence is cut. Megatron-LM
(arXiv 1909.08053, section 3), sequence parallelism (arXiv 2205.05198, section 4.2.2).
"""

from collections import Counter
from typing import Any

from shardlab.proofs.collective import Traffic, calls


def column_parallel(
    *,
    tokens: int,
    features: int,
    ranks: int,
    itemsize: int,
    sequence_parallel: bool = False,
    gathers_again: bool = True,
    input_gradient: bool = True,
) -> Traffic:
    """Y = X Wᵀ with W cut along its output; backward sums dX over the ranks.

    Args:
        tokens: rows of X.
        features: columns of X.
        ranks: along the tensor axis.
        itemsize: bytes of an element.
        sequence_parallel: X arrives cut along the sequence.
        gathers_again: backward gathers X a second time for wgrad, since forward kept the slice
            alone (ours, Megatron); DTensor keeps the whole.
        input_gradient: X wants a gradient.

    """
    payload = tokens * features * itemsize
    if not sequence_parallel:
        return Traffic(backward=calls("all_reduce", payload, ranks, int(input_gradient)))
    gathered = calls("all_gather", payload, ranks)
    scattered = calls("reduce_scatter", payload, ranks, int(input_gradient))
    return Traffic(gathered, scattered + (gathered if gathers_again else Counter()))


def row_parallel(
    *, tokens: int, features: int, ranks: int, itemsize: int, sequence_parallel: bool = False
) -> Traffic:
    """Y = X Wᵀ with W cut along its input; forward sums Y [tokens, features] over the ranks."""
    payload = tokens * features * itemsize
    if not sequence_parallel:
        return Traffic(forward=calls("all_reduce", payload, ranks))
    return Traffic(
        calls("reduce_scatter", payload, ranks),
        calls("all_gather", payload, ranks),
    )


def block(
    *,
    tokens: int,
    hidden: int,
    ranks: int,
    itemsize: int,
    sequence_parallel: bool = False,
    gathers_again: bool = True,
) -> Traffic:
    """A transformer block: attention and feed-forward, each a column and then a row layer.

    Two all-reduces forward and two backward. Under sequence parallelism each is a reduce-scatter
    and an all-gather, which is the same on the wire, and backward gathers twice more.
    """
    both: dict[str, Any] = {"tokens": tokens, "features": hidden, "ranks": ranks}
    both |= {"itemsize": itemsize, "sequence_parallel": sequence_parallel}
    return (column_parallel(**both, gathers_again=gathers_again) + row_parallel(**both)) * 2


def embedding(
    *,
    tokens: int,
    hidden: int,
    ranks: int,
    itemsize: int,
    sequence_parallel: bool = False,
    sliced: bool = False,
) -> Traffic:
    """The embedding cut along the vocabulary: a sum of rows, of which all but one are zero.

    Args:
        tokens, hidden, ranks, itemsize, sequence_parallel: as above.
        sliced: under sequence parallelism, sum the whole and slice it, as Megatron does where
            learned positions are added in between; otherwise reduce-scatter.

    """
    payload = tokens * hidden * itemsize
    summed = "reduce_scatter" if sequence_parallel and not sliced else "all_reduce"
    returned = calls("all_gather", payload, ranks, int(sequence_parallel))
    return Traffic(calls(summed, payload, ranks), returned)


def cross_entropy(*, tokens: int, ranks: int, itemsize: int) -> Traffic:
    """Ours: one all-gather of three numbers a token and rank; `itemsize` is 4 at least."""
    return Traffic(forward=calls("all_gather", ranks * 3 * tokens * itemsize, ranks))


def megatron_cross_entropy(*, tokens: int, ranks: int) -> Traffic:
    """Megatron's: all-reduces of the maximum, the target's logit and the sum, always in fp32."""
    return Traffic(forward=calls("all_reduce", tokens * 4, ranks, 3))


def partial_gradients(*, elements: int, ranks: int, itemsize: int) -> Traffic:
    """Sequence parallelism: the gradients of norms, row biases and positions, summed as one."""
    return Traffic(step=calls("all_reduce", elements * itemsize, ranks))
