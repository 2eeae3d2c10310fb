"""What experts are refused, and with what words: no process needed."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from pages.ranks import alone
from shardlab.comm import Axis, World
from shardlab.experts.expert_config import ExpertConfig
from shardlab.experts.layer import ExpertAxes, ExpertLayer
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.training.step import StepGradients
from tests.shardlab.pool import on_ranks

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"count": 0}, "top_k = 2 of 0 experts: choose at least one expert"),
    ({"top_k": 5}, "top_k = 5 of 4 experts: choose at least one expert, and top_k from 1 to 4"),
    ({"top_k": 0}, "top_k from 1 to 4"),
    ({"scores": "relu"}, "scores = 'relu': choose 'softmax' or 'sigmoid'"),
    ({"dispatch": "carrier pigeon"}, "choose 'all-to-all' or 'all-gather'"),
    ({"drop": "all"}, "choose 'probs' or 'position'"),
    ({"top_k": 1}, "the loss teaches the router nothing; choose pre_softmax = True or scores"),
    ({"capacity": 0}, "capacity = 0: choose a finite factor above 0"),
    ({"capacity": float("nan")}, "capacity = nan: choose a finite factor above 0"),
    ({"capacity": float("inf")}, "capacity = inf: choose a finite factor above 0"),
    ({"pad": True}, "pad = True fills up to a capacity: give one"),
    ({"bias_rate": 0.1}, "bias_rate goes with scores = 'sigmoid'"),
    ({"sinkhorn": True, "aux_loss": 0.1}, "leave auxiliary losses, capacity, groups"),
    ({"sinkhorn": True, "capacity": 1.0}, "leave auxiliary losses, capacity, groups"),
    ({"sinkhorn": True, "groups": 2, "top_groups": 1}, "leave auxiliary losses, capacity, groups"),
    ({"sinkhorn": True, "scaling": 2.0}, "a bias, scaling and other scores out"),
    ({"sinkhorn": True, "scores": "sigmoid", "bias_rate": 0.1}, "a bias, scaling and other"),
    ({"shared_gate": True}, "shared_gate = True gates nothing"),
    ({"shared_gate": True, "shared": 0}, "shared_gate = True gates nothing"),
    ({"groups": 2}, "groups and top_groups go together"),
    ({"groups": 0, "top_groups": 1}, "give both, from 1 up, or neither"),
    ({"groups": 2, "top_groups": 0}, "top_groups = 0 of 2 groups of 2 experts can't give 2"),
    ({"groups": 3, "top_groups": 1}, "groups axis of size 3 does not divide 4 experts"),
    ({"groups": 4, "top_groups": 1}, "top_groups = 1 of 4 groups of 1 experts can't give 2"),
    ({"groups": 2, "top_groups": 3}, "choose at most 2 groups that hold at least 2 together"),
]


@pytest.mark.parametrize(("settings", "words"), REFUSED)
def test_settings_without_a_meaning_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        ExpertConfig(**({"count": 4} | settings))


CONFIG = GPTConfig(
    layers=1, hidden=8, heads=2, ffn=8, vocab=8, sequence=4, experts=ExpertConfig(count=4)
)


def test_experts_that_the_ranks_cannot_share_are_refused() -> None:
    with alone(0, 12) as world:
        for expert, cut, words in (
            (4, 1, "size 4 does not divide 6 experts; choose 1, 2, 3 or 6"),
            (12, 1, "size 12 does not divide 6 experts; choose 1, 2, 3 or 6"),
            (1, 3, "expert_tensor axis of size 3 does not divide 8 "),
            (3, 2, ""),
        ):
            axes = ExpertAxes.of(Grid(world=world, expert=expert, expert_tensor=cut))
            six = replace(CONFIG, bias=False, experts=ExpertConfig(count=6))
            refused = pytest.raises(ValueError, match=words) if words else nullcontext()
            with refused:
                ExpertLayer(six, "x", axis=Axis.alone(), axes=axes)


def test_a_layout_that_would_count_tokens_or_biases_twice_is_refused() -> None:
    with alone(0, 4) as world:
        grid = Grid(world=world, tensor=2, expert=2, expert_tensor=1)
        axes = ExpertAxes.of(grid)
        with pytest.raises(ValueError, match="every expert see them again"):
            ExpertLayer(CONFIG, "x", axis=grid.tensor, axes=axes)
        shared = ExpertAxes.of(Grid(world=world, expert=2, expert_tensor=2))
        with pytest.raises(ValueError, match=re.escape("choose GPTConfig(bias=False), or")):
            ExpertLayer(CONFIG, "x", axis=Axis.alone(), axes=shared)
        with pytest.raises(ValueError, match="of the same grid"):
            ExpertLayer(CONFIG, "x", axis=grid.tensor, sequence_parallel=True)
        turned = Grid(world=world, expert=2, expert_tensor=2, order="ep-tp-dp-pp-cp")
        with pytest.raises(ValueError, match="put 'tp' before 'ep'"):
            ExpertAxes.of(turned)


@on_ranks(2)
def test_a_model_whose_experts_lie_on_another_grid_is_not_trained(world: World) -> None:
    model = GPT(CONFIG, tensor=Axis.alone(), experts=ExpertAxes.of(Grid(world=world, expert=2)))
    with pytest.raises(ValueError, match="build the model with experts=ExpertAxes"):
        StepGradients(model, Grid(world=world))
