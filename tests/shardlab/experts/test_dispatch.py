"""Rows on their way: what leaves comes home, and each direction is the other's adjoint.

Where this fails and test_routing.py does not, look at pieces in the wrong order; where this passes
and test_against_megatron_experts.py does not, at the router or at the experts.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pages.ranks import alone
from shardlab.comm import Axis, World
from shardlab.experts.dispatch import DispatchPlan, all_gather_rows, send_packed
from shardlab.experts.expert_config import ExpertConfig
from shardlab.experts.layer import ExpertAxes, ExpertLayer
from shardlab.fsdp import FSDP
from shardlab.gpt.config import GPTConfig
from shardlab.gpt.mlp import MLP
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers import ops, partial_gradients
from shardlab.layers.init import Init
from shardlab.layers.sharding import copies_of, sharding_of
from shardlab.proofs.ledger import Ledger
from tests.shardlab.difference import difference, random_like
from tests.shardlab.pool import on_ranks

H, E = 6, 4
INIT = Init(std=0.5, dtype=torch.float64)
CONFIG = GPTConfig(
    layers=1, hidden=H, heads=2, ffn=8, vocab=8, sequence=4, bias=False, dtype=torch.float64,
    experts=ExpertConfig(count=E, ffn=8),
)  # fmt: skip


def routed(tokens: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, weights and a choice in which the last expert is nobody's."""
    chosen_TE = random_like(tokens, E, seed=seed) > 0.2
    chosen_TE[:, -1] = False
    return (
        random_like(tokens, H, seed=seed + 1),
        random_like(tokens, E, seed=seed + 2).abs(),
        chosen_TE,
    )


def sent(
    joint: Axis, kind: str, copies: int, routed: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, DispatchPlan]:
    """What comes to this rank's experts, as a layer sends it."""
    if kind == "all-gather":
        x_AH, probs_AL, chosen_AL = all_gather_rows(*routed, joint, copies)
        places = DispatchPlan(Axis.alone(), 1, chosen_AL)
        return *places.dispatch(x_AH, probs_AL), places
    places = DispatchPlan(joint, copies, routed[2])
    return *places.dispatch(*routed[:2]), places


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize(
    ("rows", "probs"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),  # two columns, and not a bit is lost
        (torch.bfloat16, torch.float64),
    ],
)
def test_a_probability_travels_in_its_row_bit_by_bit(
    rows: torch.dtype, probs: torch.dtype, columns: int
) -> None:
    x = random_like(5, H, seed=0).to(rows)
    p = random_like(columns, 5, seed=1).to(probs).t()
    packed = []

    def collective(rows: Tensor) -> Tensor:
        packed.append(rows)
        return rows.clone()

    with alone(0, 2) as world:
        received = send_packed(world.whole, collective, x, p)
    assert packed[0].is_contiguous()
    assert packed[0].shape == (5, H + columns * probs.itemsize // rows.itemsize)
    assert torch.equal(received[0], x)
    assert torch.equal(received[1], p)


def gradients_of_probs(world: World, kind: str, copies: int) -> None:
    """With rows in half precision, as in double."""
    gradients = []
    for rows, probs in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        x_TH, probs_TE, chosen_TE = routed(64, seed=10 * world.rank)
        x_TH, probs_TE = (x.to(t).requires_grad_() for x, t in ((x_TH, rows), (probs_TE, probs)))
        rows_NH, probs_N, _ = sent(world.whole, kind, copies, (x_TH, probs_TE, chosen_TE))
        q_N = random_like(*probs_N.shape, seed=78 + world.rank).to(probs)
        torch.autograd.backward([rows_NH, probs_N], [torch.zeros_like(rows_NH), q_N])
        assert probs_TE.grad is not None
        gradients.append(probs_TE.grad.double())
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("kind", ["all-gather", "all-to-all"])
def test_rows_in_half_precision_leave_the_gradients_of_probabilities_whole(
    pool: Any, kind: str, copies: int
) -> None:
    """Packed into bf16 columns they were summed by their bits: off by 1e-2 on two ranks of ETP."""
    pool(2).run(gradients_of_probs, kind, copies)


def adjoint(world: World, kind: str, copies: int, tokens: list[int]) -> None:
    """Σ over ranks of ⟨dispatch(x, p), (r, q)⟩ is that of ⟨(x, p), its backward of (r, q)⟩."""
    joint = world.whole
    x_TH, probs_TE, chosen_TE = routed(tokens[world.rank], seed=10 * world.rank)
    x_TH.requires_grad_()
    probs_TE.requires_grad_()
    rows_NH, probs_N, places = sent(joint, kind, copies, (x_TH, probs_TE, chosen_TE))
    assert len(rows_NH) == len(probs_N) == sum(places.counts)
    r_NH, q_N = random_like(*rows_NH.shape, seed=77), random_like(*probs_N.shape, seed=78)
    torch.autograd.backward([rows_NH, probs_N], [r_NH, q_N])
    forward_product = (rows_NH * r_NH).sum() + (probs_N * q_N).sum()
    assert x_TH.grad is not None and probs_TE.grad is not None
    back = (x_TH * x_TH.grad).sum() + (probs_TE * probs_TE.grad).sum()
    forward_product, back = joint.all_reduce(torch.stack([forward_product, back]).detach()).tolist()
    assert forward_product == pytest.approx(back, rel=1e-12)
    # An expert that changes nothing: each token comes home once for each expert and rank of it.
    home_TH = places.combine(rows_NH.detach().requires_grad_())
    if kind == "all-gather":
        home_TH = ops.reduce_scatter(home_TH, joint)
    often_T1 = chosen_TE.sum(1, keepdim=True) * copies
    torch.testing.assert_close(home_TH.detach(), x_TH.detach() * often_T1)
    home_TH.sum().backward()


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("kind", ["all-gather", "all-to-all"])
def test_dispatch_and_its_backward_are_adjoint_and_combine_brings_every_row_home(
    pool: Any, kind: str, copies: int
) -> None:
    pool(2).run(adjoint, kind, copies, [5, 5])
    pool(4).run(adjoint, kind, copies, [5, 5, 5, 5])


def test_a_rank_without_tokens_and_an_expert_without_any_are_no_exception(pool: Any) -> None:
    for tokens in ([5, 0], [0, 5], [0, 0]):
        pool(2).run(adjoint, "all-to-all", 1, tokens)
    pool(2).run(adjoint, "all-gather", 1, [0, 0])


@pytest.mark.ci
@on_ranks(2)
def test_a_checked_world_refuses_to_gather_unequal_tokens_and_says_who_has_how_many(
    world: World,
) -> None:
    grid = Grid(world=World(check=True, device=world.device), context=2, expert=2)
    config = replace(CONFIG, experts=ExpertConfig(count=E, ffn=8, dispatch="all-gather"))
    layer = ExpertLayer(
        config, "x", axis=Axis.alone(), axes=ExpertAxes.of(grid), init=INIT,
        context=grid.context,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match=r"(?s)rank 0: all_gather of .*\[0, .*rank 1: .*\[4, "):
        layer(random_like(4 * world.rank, 1, H, seed=0))


def all_to_one(world: World, kind: str) -> list[float]:
    """Every token wants expert 0: the others have a gradient, and it is zero."""
    grid = Grid(world=world, expert=2)
    config = replace(
        CONFIG, experts=ExpertConfig(count=E, top_k=1, pre_softmax=True, ffn=8, dispatch=kind)
    )
    layer = ExpertLayer(config, "x", axis=Axis.alone(), axes=ExpertAxes.of(grid), init=INIT)
    with torch.no_grad():
        layer.router.weight.zero_()
        layer.router.weight[0] = 1.0
    layer(random_like(4, 1, H, seed=0).abs()).sum().backward()
    gradients = [p.grad for p in layer.experts.parameters()]
    assert all(g is not None for g in gradients)
    return [float(g.abs().max()) for g in gradients if g is not None]


@pytest.mark.parametrize("kind", ["all-gather", "all-to-all"])
def test_experts_that_nobody_chooses_learn_nothing_and_hold_nobody_up(pool: Any, kind: str) -> None:
    (first, *rest), second = pool(2).run(all_to_one, kind)
    assert first > 0
    assert rest[1:] == [0, 0]
    assert second == [0] * 4


@on_ranks(2)
def test_experts_that_tie_give_on_two_ranks_what_they_give_on_one(world: World) -> None:
    """A router of zeros: all experts tie, for every token, on every rank."""
    grid = Grid(world=world, expert=2)
    layer = ExpertLayer(CONFIG, "x", axis=Axis.alone(), axes=ExpertAxes.of(grid), init=INIT)
    whole = ExpertLayer(CONFIG, "x", axis=Axis.alone(), init=INIT)
    for model in (layer, whole):
        torch.nn.init.zeros_(model.router.weight)
    x = random_like(4, 2, H, seed=0)
    local = x.chunk(2, 1)[world.rank]
    assert difference(layer(local), whole(x).chunk(2, 1)[world.rank]) <= 1e-15


def test_one_expert_is_a_feed_forward_pair() -> None:
    config = replace(CONFIG, experts=ExpertConfig(count=1, top_k=1, pre_softmax=True, ffn=8))
    layer = ExpertLayer(config, "x", axis=Axis.alone(), init=INIT)
    pair = MLP(config, "y", axis=Axis.alone(), init=INIT)
    pair.load_state_dict(layer.experts["0"].state_dict())
    x = random_like(4, 2, H, seed=0)
    assert torch.equal(layer(x), pair(x))


def test_a_token_that_all_its_experts_dropped_leaves_as_zero() -> None:
    config = replace(
        CONFIG, experts=ExpertConfig(count=E, top_k=1, scores="sigmoid", ffn=8, capacity=0.01)
    )
    layer = ExpertLayer(config, "x", axis=Axis.alone(), init=INIT)
    y_TH = layer(random_like(16, 1, H, seed=0)).flatten(0, 1)
    chosen_TE = layer.router(random_like(16, 1, H, seed=0))[1]
    assert chosen_TE.sum(0).max() == 1
    assert (y_TH[~chosen_TE.any(1)] == 0).all()
    assert (y_TH[chosen_TE.any(1)] != 0).any(1).all()


def test_a_capacity_hides_no_load_from_the_bias() -> None:
    """Padded, all experts have equally many rows; Megatron counts those, and its bias stays."""
    steered = []
    for capacity, pad in ((None, False), (0.5, False), (0.5, True)):
        experts = ExpertConfig(
            count=E, ffn=8, scores="sigmoid", bias_rate=1.0, capacity=capacity, pad=pad
        )
        layer = ExpertLayer(replace(CONFIG, experts=experts), "x", axis=Axis.alone(), init=INIT)
        layer(random_like(8, 2, H, seed=0))
        layer.router.end_step()
        assert layer.router.expert_bias is not None
        steered.append(layer.router.expert_bias.tolist())
    assert any(steered[0])
    assert steered == [steered[0]] * 3


def test_a_copy_of_an_expert_knows_how_it_is_cut_and_who_else_has_it() -> None:
    with alone(0, 4) as world:
        grid = Grid(world=world, expert=2, expert_tensor=2)
        layer = ExpertLayer(CONFIG, "x", axis=Axis.alone(), axes=ExpertAxes.of(grid), init=INIT)
        for parameter in copy.deepcopy(layer).experts["0"].parameters():
            cut = sharding_of(parameter)
            assert cut is not None and cut.axis is grid.expert_tensor
            assert copies_of(parameter) is grid.expert_data


def test_a_copy_of_a_shared_experts_gate_knows_that_its_gradient_is_partial() -> None:
    with alone(0, 2) as world:
        grid = Grid(world=world, tensor=2, expert_tensor=1)
        gated = replace(CONFIG, experts=ExpertConfig(count=E, ffn=8, shared=8, shared_gate=True))
        layer = ExpertLayer(
            gated, "x", axis=grid.tensor, axes=ExpertAxes.of(grid), sequence_parallel=True,
            init=INIT,
        )  # fmt: skip
        gate = copy.deepcopy(layer).shared_gate
        assert gate is not None and partial_gradients.is_marked(gate)


def test_fsdp_refuses_experts_of_which_every_rank_has_others() -> None:
    with alone(0, 2) as world:
        grid = Grid(world=world, expert=2)
        model = GPT(CONFIG, tensor=Axis.alone(), experts=ExpertAxes.of(grid))
        with pytest.raises(ValueError, match=r"fc1.weight has copies on ranks \[0\], and FSDP"):
            FSDP(model, grid.data, units=model.layers.values())
        whole = Grid(world=world)
        FSDP(GPT(CONFIG, tensor=Axis.alone(), experts=ExpertAxes.of(whole)), whole.data)


@on_ranks(2)
def test_strided_rows_and_gradients_cross_as_contiguous_ones_do(world: World) -> None:
    """gloo's all-to-all writes wrong data into what isn't contiguous: none is ever handed to it."""
    layer = ExpertLayer(
        CONFIG, "x", axis=Axis.alone(), axes=ExpertAxes.of(Grid(world=world, expert=2)), init=INIT
    )
    x = random_like(8, 2, H, seed=world.rank).transpose(0, 1).requires_grad_()
    y = layer(x)
    with Ledger() as ledger:
        y.backward(random_like(*y.shape, seed=5).mT.contiguous().mT)
    assert {entry.op for entry in ledger.entries} == {"all_to_all"}
    right = x.detach().contiguous().requires_grad_()
    layer(right).backward(random_like(*y.shape, seed=5))
    assert right.grad is not None and x.grad is not None
    assert difference(x.grad, right.grad) == 0
