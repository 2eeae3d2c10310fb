"""Our layer of experts beside megatron-core's MoELayer.

Where they are not equal, look at the dispatcher first (rows that come home in another order), then
at the router. Layouts on which MoELayer is wrong, or doesn't run, are held by the compositions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from costlab.implementations.megatron import experts as moe
from shardlab.comm import World
from shardlab.experts import routing
from shardlab.experts.config import ExpertConfig
from shardlab.proofs.ledger import Ledger
from tests.shardlab.default_device import default_device
from tests.shardlab.difference import demand_alike, differences
from tests.shardlab.experts import moe_twins as twins
from tests.shardlab.experts.moe_twins import B, Case, E, F

PLAIN = ExpertConfig(count=E, top_k=2, ffn=F)
# Each says something else to the router, the dispatcher or the layer.
VARIANTS = {
    "plain": PLAIN,
    "top 1": replace(PLAIN, top_k=1, pre_softmax=True),
    "all experts": replace(PLAIN, top_k=E, scaling=2.5),
    "sigmoid with bias": replace(PLAIN, scores="sigmoid", bias_rate=0.01, scaling=1.5),
    "groups": replace(PLAIN, groups=2, top_groups=1, pre_softmax=True),
    "sinkhorn": replace(PLAIN, sinkhorn=True),
    "sinkhorn top 1": replace(PLAIN, sinkhorn=True, top_k=1),
    "losses": replace(PLAIN, aux_loss=0.3, sequence_aux_loss=0.2, z_loss=0.1),
    "capacity": replace(PLAIN, capacity=0.75),
    "first come": replace(PLAIN, capacity=0.75, drop="position"),
    "padded": replace(PLAIN, capacity=0.75, pad=True),
    "shared": replace(PLAIN, shared=F, shared_gate=True),
}
LAYOUTS = {
    1: [(1, 1, 1)],
    2: [(1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, 1), (1, 1, 2), (2, 1, 2)],
    4: [(1, 4, 1), (2, 2, 1), (2, 4, 1), (1, 2, 1), (2, 2, 2), (1, 2, 2)],
}
BOTH = ("all-to-all", "all-gather")


def cases_for(ranks: int, every: bool) -> list[Case]:
    """Every layout with both dispatchers, and on those that cut anything every variant.

    Of two layouts, one has a variant with the first dispatcher and the other with the second,
    unless `every` asks for all.
    """
    cases = [
        Case(*layout, replace(PLAIN, dispatch=dispatch))
        for layout in LAYOUTS[ranks]
        for dispatch in BOTH
    ]
    for turn, layout in enumerate(LAYOUTS[ranks][:1] if ranks == 1 else LAYOUTS[ranks][1:4:2]):
        for number, variant in enumerate(VARIANTS.values()):
            dispatches = BOTH if every else [BOTH[(turn + number) % 2]]
            cases += [Case(*layout, replace(variant, dispatch=kind)) for kind in dispatches]
        cases += [Case(*layout, VARIANTS[name], gated=True) for name in ("plain", "shared")]
    return list(dict.fromkeys(cases))


def megatron_works(case: Case) -> bool:
    """Whether MoELayer runs here: gloo has no uneven all-gather, which it wants over tensor.

    Nor is it asked to drop by position, which it does wrongly.
    """
    uneven = case.expert_tensor > 1 and case.expert > 1
    by_position = case.experts.drop == "position"
    return not (by_position or (uneven and case.experts.dispatch == "all-to-all"))


def compare_with_megatron(world: World, cases: list[Case]) -> dict[str, dict[str, float]]:
    errors = {}
    with default_device(world):
        for case in cases:
            grid = twins.grid_of(world, case)
            layer, local = twins.ours(case, grid)
            sizes = {
                "expert_model_parallel_size": case.expert,
                "expert_tensor_parallel_size": case.expert_tensor,
            }
            with moe.megatron(tensor=case.tensor, **sizes):
                errors[str(case)] = differences(local, twins.run_megatron_layer(case, grid, layer))
    return errors


RANKS = [(1, True), (2, False), *(pytest.param(n, True, marks=pytest.mark.ci) for n in (2, 4))]


@pytest.mark.parametrize(("ranks", "every"), RANKS)
def test_experts_equal_megatrons_to_the_last_bit(
    pool: Any, device: str, ranks: int, every: bool
) -> None:
    # A GPU adds the rows of a token in no fixed order.
    last_bit = 1e-15 if device == "cuda" else 0.0
    cases = [case for case in cases_for(ranks, every) if megatron_works(case)]
    exact = [case for case in cases if not case.gated]
    for some in (exact[i : i + 12] for i in range(0, len(exact), 12)):
        demand_alike(pool(ranks).run(compare_with_megatron, some), tolerance=last_bit)
    gated = [case for case in cases if case.gated]  # the rows of fc1 are in another order
    demand_alike(pool(ranks).run(compare_with_megatron, gated), tolerance=1e-15)


# ------------------------------------------------------------------ where Megatron is wrong

MENDED = "megatron-core has mended this: move the case into the equality tests"


def test_megatron_drops_by_position_tokens_that_do_not_come_last() -> None:
    # "Tokens at the end of each batch will be dropped", says its config: but a top-k of zeros and
    # ones keeps any of the ones.
    from megatron.core.transformer.moe.moe_utils import apply_router_token_dropping

    chosen_TE = torch.ones(64, 1, dtype=torch.bool)
    probs_TE = torch.rand(64, 1, generator=torch.Generator().manual_seed(0))
    _, reference = apply_router_token_dropping(probs_TE, chosen_TE, 1, 0.25, "position")
    config = ExpertConfig(count=1, top_k=1, pre_softmax=True, capacity=0.25, drop="position")
    _, ours = routing.drop(probs_TE, chosen_TE, config)
    assert reference.sum() == 16
    assert ours.flatten().nonzero().flatten().tolist() == [*range(16)]
    assert not torch.equal(reference, ours), MENDED


# ------------------------------------------------------------------ what is sent


def record_sent(world: World, case: Case) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """(operation, bytes) of a forward and backward, Megatron's and ours."""
    seen = []
    with default_device(world):
        grid = twins.grid_of(world, case)
        layer, _ = twins.ours(case, grid)
        with moe.megatron(tensor=case.tensor, expert_model_parallel_size=case.expert):
            twin = moe.layer(moe.config(hidden=twins.H, **case.megatron()))
            moe.copy(dict(layer.named_parameters()), twin, grid.expert.rank * (E // case.expert))
            for each in (twin, layer):
                with Ledger() as ledger:
                    twins.backward(each, grid)
                seen.append([(entry.op, entry.payload) for entry in ledger.entries])
    return seen[0], seen[1]


@pytest.mark.parametrize(
    ("dispatch", "reference", "ours"), [("all-to-all", 7, 5), ("all-gather", 7, 4)]
)
def test_a_probability_in_its_row_saves_collectives_and_no_byte_is_lost(
    pool: Any, dispatch: str, reference: int, ours: int
) -> None:
    case = Case(expert=2, experts=replace(PLAIN, dispatch=dispatch))
    for their, our in pool(2).run(record_sent, case):
        assert (len(their), len(our)) == (reference, ours)
        # What is left of Megatron's bytes: numbers of rows gathered where ours cross all-to-all,
        # or a map of who is chosen, a byte each, which a probability of −1 says as well.
        small = 2 * E * 8 - E * 8 if dispatch == "all-to-all" else 2 * twins.S * B * E
        assert sum(n for _, n in their) - sum(n for _, n in our) == small


# ------------------------------------------------------------------ how much a loss weighs


def weigh_loss(world: World, case: Case, per_token: bool) -> tuple[float, float]:
    """An auxiliary loss's gradient on the router, ours over Megatron's: least and greatest."""
    gradients = []
    with default_device(world):
        grid = twins.grid_of(world, case)
        layer, _ = twins.ours(case, grid)
        layer.router.end_step()
        layer.router.scale = "tokens" if per_token else 1.0
        settings = case.megatron() | {"calculate_per_token_loss": per_token}
        with moe.megatron(tensor=case.tensor, expert_tensor_parallel_size=1):
            twin = moe.layer(moe.config(hidden=twins.H, **settings))
            moe.copy(dict(layer.named_parameters()), twin, 0)
            for each in (layer, twin):
                each.zero_grad()
                y = each(twins.rows(grid, seed=100))
                (y[0] if isinstance(y, tuple) else y).mul(0).sum().backward()
                gradient = each.router.weight.grad
                assert gradient is not None
                gradients.append(gradient.clone())
    ratios = gradients[0] / gradients[1]
    return float(ratios.min()), float(ratios.max())


@pytest.mark.parametrize(
    ("case", "per_token", "ratio"),
    [
        (Case(experts=replace(PLAIN, aux_loss=0.5)), False, 1),
        (Case(2, experts=replace(PLAIN, aux_loss=0.5)), False, 1),
        (Case(2, experts=replace(PLAIN, global_aux_loss=0.5)), False, 1),
        # Each of two data ranks has half of the loss over the whole batch, and gradients are
        # averaged over data ranks: it weighs half of what its coefficient says.
        (Case(experts=replace(PLAIN, global_aux_loss=0.5)), False, 2),
        # A loss that is a sum over tokens is divided by all of them; the auxiliary one is
        # multiplied by those of one tensor rank, under sequence parallelism a part.
        (Case(experts=replace(PLAIN, aux_loss=0.5)), True, 1),
        (Case(2, experts=replace(PLAIN, aux_loss=0.5)), True, 2),
        (Case(2, experts=replace(PLAIN, z_loss=0.5)), True, 2),
    ],
)
def test_an_auxiliary_loss_weighs_as_megatrons_but_where_its_weight_shrinks_with_the_ranks(
    pool: Any, case: Case, per_token: bool, ratio: int
) -> None:
    for least, greatest in pool(2).run(weigh_loss, case, per_token):
        assert least == pytest.approx(ratio, rel=1e-6), MENDED
        assert greatest == pytest.approx(ratio, rel=1e-6), MENDED
