"""Interleaved 1F1B beside megatron-core's own, over the same small pieces.

Where a pipeline has two stages Megatron needs overlapped messages: its plain exchange sends to the
stage before first, receives from it first, and both are the stage after too, so that an activation
is taken for a gradient of the same shape. Ours exchanges at most one message a tick each way.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from costlab.implementations import megatron as mcore
from costlab.implementations.megatron.gpt import MegatronStage, forward_step
from shardlab.comm import World
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import interleaved
from tests.shardlab import pieces
from tests.shardlab.difference import demand_alike, difference, differences
from tests.shardlab.pieces import BATCH, HIDDEN, Piece, chunks_of, gradients_of


class Lifted(nn.Module):
    """A piece whose hidden states are [1, B, H]: Megatron counts a sequence."""

    def __init__(self, piece: Piece) -> None:
        super().__init__()
        self.piece = piece

    def forward(self, x: Tensor) -> Tensor:
        y_BH = self.piece(x if self.piece.first else x[0])
        return y_BH if self.piece.last else y_BH[None]


def run_both(
    world: World, cases: list[tuple[int, int, int]], overlap: bool
) -> dict[str, dict[str, float]]:
    """Return the relative differences from Megatron of each (m, v, group) in `cases`, by name."""
    errors = {}
    for m, v, group in cases:
        ours, reference = chunks_of(world, v), chunks_of(world, v)
        losses = run(
            interleaved(world.size, m, v, group=group), list(ours), pieces.microbatches(m),
            pieces.loss, axis=world.axis("pipeline", range(world.size)), shape=(BATCH // m, HIDDEN),
        )  # fmt: skip
        with mcore.megatron(pipeline=world.size, virtual_pipeline_model_parallel_size=v):
            config = mcore.config(
                hidden=HIDDEN, depth=world.size * v, virtual_pipeline_model_parallel_size=v,
                microbatch_group_size_per_vp_stage=group, overlap_p2p_comm=overlap,
                batch_p2p_comm=not overlap,
            )  # fmt: skip
            reports = mcore.schedules.forward_backward_pipelining_with_interleaving(
                forward_step_func=forward_step(pieces.loss),
                data_iterator=[iter(pieces.microbatches(m)) for _ in range(v)],
                model=[
                    MegatronStage(Lifted(piece), config, c) for c, piece in enumerate(reference)
                ],
                num_microbatches=m,
                seq_length=1,
                micro_batch_size=BATCH // m,
            )
        case = f"{m} micro-batches, {v} chunks, groups of {group}"
        errors[case] = differences(gradients_of(ours), gradients_of(reference))
        if losses:
            megatrons = torch.stack([report["loss"] for report in reports])
            errors[case]["losses"] = difference(torch.stack(losses), megatrons)
    return errors


@pytest.mark.parametrize(
    ("p", "cases", "overlap"),
    [(2, [(4, 2, 2), (4, 4, 4)], True), (4, [(4, 2, 4), (8, 2, 4)], False)],
)
def test_losses_and_gradients_equal_megatrons_interleaving(
    pool: Any, p: int, cases: list[tuple[int, int, int]], overlap: bool
) -> None:
    demand_alike(pool(p).run(run_both, cases, overlap))


def test_megatrons_plain_exchange_mixes_up_two_stages_and_says_nothing(pool: Any) -> None:
    """Its training script refuses this setting (arguments.py); the schedule itself computes on."""
    for errors in pool(2).run(run_both, [(4, 2, 2)], False):
        (differing,) = errors.values()
        assert max(differing.values()) > 0.1, "mended: drop the overlap above"
