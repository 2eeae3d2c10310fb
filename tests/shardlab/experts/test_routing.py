"""The choice of experts as arithmetic, without a process: ties, groups, capacity, balance."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from shardlab.comm import Axis
from shardlab.experts import routing
from shardlab.experts.expert_config import ExpertConfig
from shardlab.experts.router import Router, attach_loss
from shardlab.gpt.config import GPTConfig
from shardlab.layers.init import Init
from tests.shardlab.difference import random_like
from tests.shardlab.properties import steady

EIGHT = ExpertConfig(count=8, top_k=3)


def logits(tokens: int = 16, seed: int = 0) -> Tensor:
    return random_like(tokens, 8, seed=seed)


configs = st.sampled_from(
    [
        EIGHT,
        replace(EIGHT, pre_softmax=True),
        replace(EIGHT, scores="sigmoid"),
        replace(EIGHT, top_k=1, pre_softmax=True),
        replace(EIGHT, groups=4, top_groups=2, top_k=4),
        replace(EIGHT, groups=2, top_groups=1, scaling=2.0),
    ]
)


@steady
@given(config=configs, tokens=st.integers(0, 9), tied=st.booleans(), seed=st.integers(0, 99))
def test_each_token_has_its_k_experts_and_no_weight_elsewhere(
    config: ExpertConfig, tokens: int, tied: bool, seed: int
) -> None:
    x_TE = logits(tokens, seed).round(decimals=0 if tied else 9)  # rounded: many ties
    probs_TE, chosen_TE = routing.choose(x_TE, config)
    assert (chosen_TE.sum(1) == config.top_k).all()
    assert (probs_TE[~chosen_TE] == 0).all()
    assert (probs_TE[chosen_TE] > 0).all()
    if not config.pre_softmax and config.top_k > 1:
        whole = torch.full((tokens,), config.scaling or 1.0, dtype=torch.float64)
        torch.testing.assert_close(probs_TE.sum(1), whole, rtol=1e-6, atol=0)


def test_experts_that_tie_are_chosen_alike_by_all_who_ask() -> None:
    x_TE = torch.zeros(5, 8, dtype=torch.float64)
    first = routing.choose(x_TE, EIGHT)
    for rows in (slice(0, 2), slice(3, 5)):  # as another rank would, that has fewer tokens
        part = routing.choose(x_TE[rows], EIGHT)
        assert torch.equal(part[0], first[0][rows])
        assert torch.equal(part[1], first[1][rows])
    assert first[0][first[1]].unique().tolist() == [pytest.approx(1 / 3, rel=1e-7)]


def test_a_bias_moves_the_choice_and_not_the_weights() -> None:
    config = replace(EIGHT, scores="sigmoid", top_k=2)
    bias_E = torch.zeros(8)
    bias_E[5] = 10.0
    probs_TE, chosen_TE = routing.choose(logits(), config, bias_E)
    assert chosen_TE[:, 5].all()
    scores_TE = torch.sigmoid(logits().float()).double() * chosen_TE
    torch.testing.assert_close(probs_TE, scores_TE / scores_TE.sum(1, keepdim=True))


def test_of_groups_the_best_give_all_experts() -> None:
    config = replace(EIGHT, groups=4, top_groups=1, top_k=2)
    x_TE = torch.full((1, 8), -5.0, dtype=torch.float64)
    x_TE[0, 0], x_TE[0, 6], x_TE[0, 7] = 2.0, 1.5, 1.4  # the best expert is not in the best group
    assert routing.choose(x_TE, config)[1].nonzero()[:, 1].tolist() == [6, 7]


@pytest.mark.parametrize("drop", ["probs", "position"])
@pytest.mark.parametrize("capacity", [0.01, 0.5, 1.0, 100.0])
def test_an_expert_takes_no_more_than_its_capacity(drop: str, capacity: float) -> None:
    config = replace(EIGHT, capacity=capacity, drop=drop)
    probs_TE, chosen_TE = routing.choose(logits(), EIGHT)
    kept_probs, kept_TE = routing.drop(probs_TE, chosen_TE, config)
    limit = min(16, math.ceil(16 * 3 / 8 * capacity))
    assert (kept_TE.sum(0) == chosen_TE.sum(0).clamp(max=limit)).all()
    assert not (kept_TE & ~chosen_TE).any()
    assert torch.equal(kept_probs, probs_TE * kept_TE)
    if drop == "probs":  # what was kept is worth no less than what was dropped
        dropped = chosen_TE & ~kept_TE
        for e in range(8):
            if dropped[:, e].any():
                assert probs_TE[kept_TE[:, e], e].min() >= probs_TE[dropped[:, e], e].max()
    else:
        assert torch.equal(kept_TE, chosen_TE & (chosen_TE.cumsum(0) <= limit))
    _, padded_TE = routing.drop(probs_TE, chosen_TE, replace(config, pad=True))
    assert (padded_TE.sum(0) == limit).all()


def test_nothing_is_dropped_of_no_tokens() -> None:
    none = torch.zeros(0, 8, dtype=torch.float64)
    results = routing.drop(none, none.bool(), replace(EIGHT, capacity=1.0))
    assert [tuple(x.shape) for x in results] == [(0, 8), (0, 8)]


def test_sinkhorn_gives_every_token_and_every_expert_the_same_in_all() -> None:
    plan_TE = routing.sinkhorn(logits(64) * 3, tolerance=1e-7)
    torch.testing.assert_close(plan_TE.sum(0), torch.full((8,), 1 / 8).double(), rtol=1e-4, atol=0)
    torch.testing.assert_close(
        plan_TE.sum(1), torch.full((64,), 1 / 64).double(), rtol=1e-2, atol=0
    )
    assert torch.isfinite(routing.sinkhorn(logits(0))).all()


# ------------------------------------------------------------------ balance


def test_an_even_load_costs_one_and_one_expert_for_all_e_over_k() -> None:
    even = torch.full((8, 8), 1 / 8)
    assert routing.load_loss(even, torch.full((8,), 3), EIGHT) == pytest.approx(1)
    scores = torch.zeros(8, 8)
    scores[:, 0] = 1
    load = torch.tensor([8, 0, 0, 0, 0, 0, 0, 0])
    assert routing.load_loss(
        scores, load, replace(EIGHT, top_k=1, pre_softmax=True)
    ) == pytest.approx(8)


def test_an_attached_loss_sends_its_gradient_and_changes_nothing_else() -> None:
    x, weight = (random_like(3, seed=seed).requires_grad_() for seed in (0, 1))
    y = attach_loss(x, weight.square().sum(), 0.5)
    assert torch.equal(y, x)
    y.backward(torch.full((3,), 7.0, dtype=torch.float64))
    assert x.grad is not None and x.grad.tolist() == [7, 7, 7]
    assert torch.equal(weight.grad, weight.detach())  # type: ignore[arg-type]


def router(config: ExpertConfig, dtype: torch.dtype = torch.float64) -> Router:
    model = GPTConfig(
        layers=1, hidden=8, heads=1, vocab=1, sequence=1, bias=False, experts=config
    )  # fmt: skip
    init = Init(std=1.0, dtype=dtype)
    return Router(model, "r", *(Axis.alone(),) * 3, init=init)


def test_the_bias_rises_where_few_tokens_go_and_only_once_a_step() -> None:
    module = router(replace(EIGHT, scores="sigmoid", bias_rate=0.25))
    x = random_like(16, 1, 8, seed=3)
    load_E = module(x)[1].sum(0) + module(x)[1].sum(0)  # two micro-batches
    module.eval()(x)  # an evaluation counts nothing
    module.end_step()
    assert module.expert_bias is not None
    expected = 0.25 * (load_E.float().mean() - load_E).sign()
    assert torch.equal(module.expert_bias, expected)
    module.end_step()
    assert torch.equal(module.expert_bias, expected)
    assert not module.expert_bias.requires_grad


@pytest.mark.parametrize("kind", ["aux_loss", "sequence_aux_loss", "global_aux_loss", "z_loss"])
def test_no_loss_is_attached_where_nothing_trains_and_none_is_nan_of_no_tokens(kind: str) -> None:
    module = router(replace(EIGHT, **{kind: 1.0}))

    def learnt(tokens: int) -> float:
        """Of the attached loss alone."""
        module.zero_grad()
        module(random_like(tokens, 2, 8, seed=0))[0].mul(0).sum().backward()
        assert module.weight.grad is not None
        return float(module.weight.grad.abs().sum())

    assert learnt(4) > 0
    assert learnt(0) == 0
    module.eval()
    assert learnt(4) == 0


def test_a_half_precision_model_is_routed_in_fp32() -> None:
    module = router(EIGHT, torch.bfloat16)
    x = random_like(64, 1, 8, seed=3).bfloat16()
    probs_TE, chosen_TE = module(x)
    assert probs_TE.dtype == torch.float32
    exact_TE = torch.nn.functional.linear(x.float().flatten(0, 1), module.weight.float())
    assert torch.equal(chosen_TE, routing.choose(exact_TE, EIGHT)[1])


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_a_forward_counts_for_the_bias_once_and_one_without_gradients_not_at_all(
    reentrant: bool | None,
) -> None:
    biased = router(replace(EIGHT, scores="sigmoid", bias_rate=0.25))
    x = random_like(16, 1, 8, seed=3).requires_grad_()
    with torch.no_grad():
        biased(x)
    assert isinstance(biased._load_E, int)
    checkpointed = partial(checkpoint, biased, use_reentrant=reentrant)
    (biased(x) if reentrant is None else checkpointed(x))[0].sum().backward()
    assert isinstance(biased._load_E, Tensor) and int(biased._load_E.sum()) == 16 * 3
    biased.forget()  # a step that is given up
    assert isinstance(biased._load_E, int)
