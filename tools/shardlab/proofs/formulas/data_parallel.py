"""Data parallelism: gradients in buckets."""

from collections import Counter
from collections.abc import Sequence

from shardlab.proofs.collective import Call, Traffic, calls


def data_parallel(buckets: Sequence[int], *, ranks: int) -> Traffic:
    """Replicas: an all-reduce for each bucket of gradients, `buckets` in bytes."""
    reduced = sum((calls("all_reduce", payload, ranks) for payload in buckets), Counter[Call]())
    return Traffic(backward=reduced)


def bucket_sizes(gradients: Sequence[int], caps: Sequence[int]) -> list[int]:
    """Return the bytes of each bucket for gradients of one dtype, in the order of their arrival.

    A bucket closes with the gradient that fills it to its cap; the last cap holds for the rest.
    DDP's caps are 1 MiB and then 25 MiB, or `bucket_cap_mb` for all where that is given.
    """
    sizes: list[int] = []
    filled = 0
    for gradient in gradients:
        filled += gradient
        if filled >= caps[min(len(sizes), len(caps) - 1)]:
            sizes.append(filled)
            filled = 0
    return [*sizes, filled] if filled else sizes
