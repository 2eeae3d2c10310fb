"""A step that is given up half way leaves no trace in the loads of the step that is done again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shardlab.comm import Axis, World
from shardlab.experts.expert_config import ExpertConfig
from shardlab.experts.layer import ExpertAxes, ExpertLayer
from shardlab.fsdp import FSDP
from shardlab.gpt.model import GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.init import Init
from shardlab.training.step import StepGradients

EXPERTS = ExpertConfig(
    count=4, top_k=2, ffn=8, scores="sigmoid", bias_rate=0.1, global_aux_loss=0.5
)
INIT = Init(0, 0.3, torch.float64)
CONFIG = GPTConfig(
    layers=2, hidden=8, heads=2, vocab=8, sequence=8, bias=False, experts=EXPERTS,
    dtype=torch.float64,
)  # fmt: skip


class Shared(nn.Module):
    """Two blocks of experts with one router, and a backward that can be made to raise."""

    def __init__(self, axes: ExpertAxes) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            ExpertLayer(CONFIG, f"layers.{i}", axis=Axis.alone(), axes=axes, init=INIT)
            for i in range(2)
        )
        self.layers[1].router = self.layers[0].router
        self.raises = False

    def forward(self, x_SBH: Tensor) -> Tensor:
        y_SBH: Tensor = self.layers[0](x_SBH)
        if self.raises:
            y_SBH.register_hook(self._fail)
        return self.layers[1](y_SBH).square().mean()  # type: ignore[no-any-return]

    def _fail(self, _: Tensor) -> None:
        raise ArithmeticError


def given_up(world: World, sharded: bool) -> None:
    """A step in which the second micro-batch's backward raises, and the step done again."""
    grid, results = Grid(world=world), []
    generator = torch.Generator().manual_seed(world.rank)
    x = torch.randn(2, 8, 2, CONFIG.hidden, dtype=torch.float64, generator=generator)
    for fails in (False, True):
        model = Shared(ExpertAxes.of(grid))
        bias = model.layers[0].router.expert_bias
        part = FSDP(model, grid.replicas) if sharded else model
        step = StepGradients(part, grid, microbatches=2)
        if fails:
            (part(x[0]) / 2).backward()
            model.raises = True
            with pytest.raises(ArithmeticError):
                (part(x[1]) / 2).backward()
            model.raises = False
            step.zero_grad()
        for piece in x:
            (part(piece) / 2).backward()
        norm = step.finish()
        if isinstance(part, FSDP):
            with part.gathered():
                bias = model.layers[0].router.expert_bias.clone()
        results.append((norm, bias.detach().clone()))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1]) and bool(results[0][1].any())


@pytest.mark.parametrize("sharded", [False, True])
def test_a_shared_router_counts_a_step_that_was_given_up_not_at_all(
    pool: Any, sharded: bool
) -> None:
    pool(2).run(given_up, sharded)
