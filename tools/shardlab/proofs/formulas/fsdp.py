"""Data parallelism, replicated or sharded: gradients in buckets, and units gathered and reduced.

ZeRO (arXiv 1910.02054, section 7), PyTorch FSDP (arXiv 2304.11277).
"""

from collections import Counter
from collections.abc import Sequence
from math import prod

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


def fully_sharded(
    units: Sequence[int],
    *,
    ranks: int,
    itemsize: int,
    gradient_itemsize: int | None = None,
    replicas: int = 1,
    reshards_after_forward: bool = True,
    micro_batches: int = 1,
    synced: Sequence[int] | None = None,
    keeps_unsynced: bool = True,
) -> Traffic:
    """Parameters, gradients and optimizer state cut over the ranks (FSDP, ZeRO).

    A unit's parameters are gathered before its forward, and before its backward where they went in
    between; its gradient is reduce-scattered, and all-reduced over the replicas of the shard. The
    root, which is the first unit, stays whole from its forward to its backward. With one rank and
    several replicas it is FSDP1's NO_SHARD: an all-reduce for each unit.

    Args:
        units: elements of each unit's flat parameter with its padding (`flat_elements`), the
            root first.
        ranks: along the axis over which parameters are cut.
        itemsize: bytes of an element that is gathered.
        gradient_itemsize: bytes of one that is reduced, if they differ.
        replicas: along the second axis of a hybrid strategy.
        reshards_after_forward: FULL_SHARD and HYBRID_SHARD do, SHARD_GRAD_OP doesn't.
        micro_batches: forwards and backwards in a step.
        synced: those that reduce gradients; by default the last alone (`no_sync` in the others).
        keeps_unsynced: parameters that stay whole after forward stay whole after a backward
            without sync as well (ours, FSDP1); FSDP2 releases them.

    """
    reduced = range(micro_batches - 1, micro_batches) if synced is None else synced
    traffic, whole = Traffic(), False
    for index in range(micro_batches):
        gathered = Counter[Call]() if whole else _each("all_gather", units, itemsize, ranks)
        again = units[1:] if reshards_after_forward else ()
        backward = _each("all_gather", again, itemsize, ranks)
        if index in reduced:
            width = gradient_itemsize or itemsize
            backward += _each("reduce_scatter", units, width, ranks)
            backward += _each("all_reduce", [unit // ranks for unit in units], width, replicas)
        whole = keeps_unsynced and not reshards_after_forward and index not in reduced
        traffic += Traffic(gathered, backward)
    return traffic


def _each(op: str, units: Sequence[int], itemsize: int, ranks: int) -> "Counter[Call]":
    return sum((calls(op, unit * itemsize, ranks) for unit in units), Counter[Call]())


def flat_elements(
    numels: Sequence[int], ranks: int, *, alignment: int = 1, aligned_end: bool = False
) -> int:
    """Return the elements of a flat parameter, padded so that every rank holds as many.

    Args:
        numels: elements of each parameter, in order.
        ranks: over which it is cut.
        alignment: each parameter begins at a multiple of it. Ours: 8. FSDP1: 1, or the elements in
            16 bytes under `use_orig_params=True`.
        aligned_end: the end is padded to the alignment too (ours), before it is to the ranks.

    """
    end = 0
    for numel in numels:
        end = _up(end, alignment) + numel
    return _up(_up(end, alignment) if aligned_end else end, ranks)


def per_parameter_elements(shapes: Sequence[Sequence[int]], ranks: int) -> int:
    """Return the elements that FSDP2 gathers for a unit: each parameter padded in its first dim."""
    return sum(_up(first, ranks) * prod(rest) for first, *rest in shapes)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
