"""A GPT on a grid of tensor × context × pipeline × data: what one rank sends in one step.

What the other formulas say of the parts, put together as `GPT`, `StepGradients` and the pipeline's
runner put them together. A pipeline's
activations go to the next stage, their gradients come back.
"""

from dataclasses import dataclass
from typing import Any

from shardlab.proofs.collective import Traffic, calls
from shardlab.proofs.formulas.context import context_attention, mean_over_all_tokens
from shardlab.proofs.formulas.fsdp import data_parallel
from shardlab.proofs.formulas.tensor_parallel import (
    block,
    column_parallel,
    cross_entropy,
    embedding,
    partial_gradients,
)


def pipeline(
    *, payload: int, micro_batches: int, stage: int, stages: int, chunks: int = 1
) -> Traffic:
    """Activations to the next stage, gradients to the one before; the schedule changes nothing.

    Args:
        payload: bytes of what crosses between two stages for one micro-batch: S · B · H elements
            (a tensor rank's share of them under sequence parallelism).
        micro_batches: in a step.
        stage: this rank's, from 0.
        stages: along the pipeline axis.
        chunks: model chunks a stage; piece c · stages + stage is this rank's chunk c.

    """
    pieces = [chunk * stages + stage for chunk in range(chunks)]
    after = sum(piece < stages * chunks - 1 for piece in pieces) * micro_batches
    before = sum(piece > 0 for piece in pieces) * micro_batches
    if stages == 1:
        return Traffic()
    return Traffic(
        calls("send", payload, 2, after) + calls("recv", payload, 2, before),
        calls("send", payload, 2, before) + calls("recv", payload, 2, after),
    )


@dataclass(frozen=True)
class Sizes:
    """What of a model and a grid the traffic depends on.

    Attributes:
        tokens: S · B of one micro-batch, of whole sequences.
        hidden, layers: H, and blocks in the whole model.
        tensor, stages, data, context: ranks along each axis.
        kind: of attention over the context axis; `queries` and `keys` are the columns of its
            queries (A · D) and of its keys in the whole model, None for H.
        itemsize: bytes of an element of activations, parameters and gradients.
        sequence_parallel: activations between the layers are cut along S.
        fused: linears and head are `matmul.fuse`d: under sequence parallelism they gather their
            input again in backward, where the plain ones keep it whole.
        micro_batches: in a step.

    """

    tokens: int
    hidden: int
    layers: int
    itemsize: int
    tensor: int = 1
    stages: int = 1
    data: int = 1
    sequence_parallel: bool = False
    fused: bool = False
    micro_batches: int = 1
    context: int = 1
    kind: str = "ring"
    queries: int | None = None
    keys: int | None = None


def micro_batch(sizes: Sizes, stage: int) -> Traffic:
    """One micro-batch's forward and backward through a stage, over tensor and context axes."""
    axis: dict[str, Any] = {
        "tokens": sizes.tokens // sizes.context,
        "ranks": sizes.tensor,
        "itemsize": sizes.itemsize,
    }
    cut = sizes.sequence_parallel
    layer = block(**axis, hidden=sizes.hidden, sequence_parallel=cut, gathers_again=sizes.fused)
    layer += context_attention(
        sizes.kind, tokens=sizes.tokens, queries=(sizes.queries or sizes.hidden) // sizes.tensor,
        keys=(sizes.keys or sizes.hidden) // sizes.tensor, ranks=sizes.context,
        itemsize=sizes.itemsize,
    )  # fmt: skip
    traffic = layer * (sizes.layers // sizes.stages)
    if stage == 0:
        traffic += embedding(**axis, hidden=sizes.hidden, sequence_parallel=cut)
    if stage == sizes.stages - 1:
        traffic += column_parallel(
            **axis, features=sizes.hidden, sequence_parallel=cut, gathers_again=sizes.fused
        )
        traffic += cross_entropy(**axis) + mean_over_all_tokens(ranks=sizes.context)
    return traffic


def step(
    sizes: Sizes, stage: int, *, buckets: list[int], partial: int, tied: int = 0,
    head_norms: int = 0,
) -> Traffic:  # fmt: skip
    """One optimizer step of one rank: micro-batches, pipeline, gradients, their norm.

    Args:
        sizes: of the model and the grid.
        stage: this rank's place along the pipeline.
        buckets: bytes of each bucket of gradients of this stage.
        partial: elements of this stage's parameters whose gradients are partial under sequence
            parallelism.
        tied: elements of this rank's piece of an embedding that first and last stage share.
        head_norms: elements of this stage's norms of queries and keys (`qk_norm`), whose gradients
            are partial with or without sequence parallelism: each rank has its own heads.

    """
    share = sizes.tensor if sizes.sequence_parallel else 1
    crossing = sizes.tokens * sizes.hidden * sizes.itemsize // share // sizes.context
    traffic = micro_batch(sizes, stage) * sizes.micro_batches
    traffic += pipeline(
        payload=crossing, micro_batches=sizes.micro_batches, stage=stage, stages=sizes.stages
    )
    traffic += data_parallel(buckets, ranks=sizes.data * sizes.context)
    if elements := head_norms + partial * sizes.sequence_parallel:
        traffic += partial_gradients(elements=elements, ranks=sizes.tensor, itemsize=sizes.itemsize)
    if sizes.stages > 1 and stage in (0, sizes.stages - 1) and tied:
        traffic += Traffic(step=calls("all_reduce", tied * sizes.itemsize, 2))
    return traffic + Traffic(step=calls("all_reduce", 8, sizes.tensor * sizes.stages))
