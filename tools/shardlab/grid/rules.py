"""Which sizes must divide which: checks of a grid and a model, with errors that name valid sizes.

These are pure checks of numbers, which grids and models call. Megatron has the same checks, partly
in `initialize_model_parallel` (core/parallel_state.py), partly in `TransformerConfig` and
training/arguments.py.
"""

from collections.abc import Sequence
from math import prod


def refuse(*rules: tuple[object, str], error: type[ValueError] = ValueError) -> None:
    """Raise the message of the first of these (condition, message) pairs whose condition is true.

    Raises:
        error: a condition is true.
    """
    for refused, why in rules:
        if refused:
            raise error(why)


def check_divides(axis: str, size: int, total: int, what: str) -> None:
    """Refuse an axis whose size does not divide `total` things called `what` ("heads", say).

    Raises:
        ValueError: says which sizes work.

    """
    if total % size:
        raise ValueError(
            f"{axis} axis of size {size} does not divide {total} {what}; "
            f"choose {_join_choices(divisors(total))}"
        )


def check_world(size: int, *, data: int | None = None, **axes: int) -> int:
    """Return the size of the data axis: `size` divided by the product of the other axes.

    Args:
        size: ranks in the world.
        data: the expected size of the data axis; None for any.
        axes: ranks along each other axis.

    Raises:
        ValueError: a size is below 1, the axes' product does not divide `size`, or the data axis
            has another size than expected.

    """
    for name, ranks in axes.items():
        if ranks < 1:
            raise ValueError(f"{name} axis of size {ranks}; choose a whole number from 1")
    product, written = _multiply(axes)
    if size % product:
        raise ValueError(
            f"{written} = {product} ranks do not divide a world of {size}; start a multiple of "
            f"{product} processes, or choose axes whose product divides {size}"
        )
    data_size = size // product
    if data is not None and data != data_size:
        needed, written = _multiply({**axes, "data": data})
        raise ValueError(
            f"{written} = {needed} ranks, but the world has {size}; "
            f"start {needed} processes, or choose data = {data_size}"
        )
    return data_size


def check_tensor(
    tensor: int, *, hidden: int, heads: int, kv_heads: int | None = None, ffn: int | None = None,
    vocab: int | None = None, sequence: int | None = None,
) -> None:  # fmt: skip
    """Refuse a model whose layers the tensor axis cannot cut into equal pieces.

    Args:
        tensor: ranks along the tensor axis.
        hidden: the hidden size of a block.
        heads: attention heads of a block.
        kv_heads: key-value groups of grouped-query attention; None for one group a head.
        ffn: the width of a block's feed-forward pair; None for no check.
        vocab: rows of the embedding; None if it is padded instead (`padded_vocabulary`).
        sequence: tokens in a sequence; give it under sequence parallelism only.

    Raises:
        ValueError: names the size that isn't divided, and the sizes that work.

    """
    check_divides("tensor", tensor, heads, "heads")
    if kv_heads is not None:
        if heads % kv_heads:
            raise ValueError(
                f"{heads} heads do not form {kv_heads} equal key-value groups; "
                f"choose {_join_choices(divisors(heads))}"
            )
        check_divides("tensor", tensor, kv_heads, "key-value groups")
    if hidden % heads:
        raise ValueError(
            f"hidden size {hidden} is not a multiple of {heads} heads; choose "
            f"{hidden // heads * heads or heads} or {(hidden // heads + 1) * heads}"
        )
    for total, what in ((ffn, "ffn columns"), (vocab, "words of vocabulary")):
        if total is not None:
            check_divides("tensor", tensor, total, what)
    if sequence is not None:
        check_divides("tensor", tensor, sequence, "tokens of a sequence (sequence parallelism)")


def check_pipeline(stages: int, *, layers: int, chunks: int = 1) -> None:
    """Refuse layers that don't form equal stages, or equal chunks of the interleaved schedule.

    Args:
        stages: ranks along the pipeline axis.
        layers: blocks of the model.
        chunks: model chunks a rank; above 1 the schedule is interleaved.

    Raises:
        ValueError: says which numbers work.

    """
    check_divides("pipeline", stages, layers, "layers")
    if chunks > 1 and stages == 1:
        raise ValueError(
            f"{chunks} chunks a rank need a pipeline; choose chunks = 1, or 2 stages or more"
        )
    if (layers // stages) % chunks:
        raise ValueError(
            f"{chunks} chunks do not divide the {layers // stages} layers of a stage; "
            f"choose {_join_choices(divisors(layers // stages))}"
        )


def padded_vocabulary(vocab: int, tensor: int) -> int:
    """Return the rows of an embedding that holds `vocab` words in equal pieces.

    Megatron pads to pieces of k·128 (training/tokenizer, `_vocab_size_with_padding`).
    """
    return -(-vocab // tensor) * tensor


def divisors(total: int) -> list[int]:
    """Return the divisors of `total`, smallest first."""
    return [size for size in range(1, total + 1) if total % size == 0]


def _multiply(axes: dict[str, int]) -> tuple[int, str]:
    return prod(axes.values()), " · ".join(f"{n} {size}" for n, size in axes.items()) or "no axis"


def _join_choices(sizes: Sequence[int]) -> str:
    *first, last = map(str, sizes)
    return f"{', '.join(first)} or {last}" if first else last
