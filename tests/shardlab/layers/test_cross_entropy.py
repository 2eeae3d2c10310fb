"""Cross-entropy over a cut vocabulary against torch's, also where exponentials overflow."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from shardlab.comm import World
from shardlab.layers import ops
from shardlab.layers.cross_entropy import cross_entropy
from shardlab.proofs.ledger import Ledger
from tests.shardlab.pool import on_ranks
from tests.shardlab.reference import relative_error

S, B, V = 4, 3, 16
EXACT = 1e-12


def cases() -> dict[str, Tensor]:
    """Whole logits [S, B, V], each hard in its own way."""
    noise = torch.randn(S, B, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one_rank_far_ahead = noise.clone()
    one_rank_far_ahead[..., :2] += 1e4
    masked = noise.clone()
    masked[..., 3] = -math.inf
    return {
        "plain": noise,
        "huge": 1e4 * noise,
        "tiny": 1e-9 * noise,
        "all alike": torch.zeros(S, B, V, dtype=torch.float64),
        "far below zero": noise - 1e5,
        "one rank far ahead": one_rank_far_ahead,
        "a word masked": masked,
        "strided": torch.stack([noise, noise], -1)[..., 0],
    }


def targets() -> Tensor:
    drawn = torch.randint(0, V, (B, S), generator=torch.Generator().manual_seed(1)).t()
    return torch.where(drawn == 3, 4, drawn)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@on_ranks("size")
def test_loss_and_gradient_equal_the_whole_softmax(world: World) -> None:
    axis, wrong = world.whole, {}
    wanted = targets().to(world.device)
    for label, case in cases().items():
        reference = case.to(world.device).detach().clone().requires_grad_()
        expected = torch.nn.functional.cross_entropy(
            reference.flatten(0, 1), wanted.flatten(), reduction="none"
        ).view(S, B)
        ours = ops.local_slice(case.to(world.device), axis, -1)
        ours = (ours if label == "strided" else ours.contiguous()).detach().requires_grad_()
        before = ours.detach().clone()
        actual = cross_entropy(ours, wanted, axis=axis)
        g = torch.linspace(-1, 2, 2 * S * B, dtype=torch.float64, device=world.device)
        g = g.view(S, B, 2)[..., 0]
        actual.backward(g, retain_graph=True)
        (again,) = torch.autograd.grad(actual, ours, g)
        expected.backward(g)
        wanted_gradient = ops.local_slice(reference.grad, axis, -1)
        scale = reference.grad.abs().max()
        if not relative_error(actual, expected) <= EXACT:
            wrong[label] = f"loss is off by {relative_error(actual, expected)}"
        elif not (ours.grad - wanted_gradient).abs().max() <= EXACT * scale:
            wrong[label] = "gradient is off"
        elif not torch.equal(ours.detach(), before):
            wrong[label] = "the logits were changed"
        elif not torch.equal(again, ours.grad):
            wrong[label] = "a second backward gave something else"
    assert wrong == {}


@on_ranks(4)
def test_one_collective_forward_none_backward_and_the_same_bits_on_every_rank(world: World) -> None:
    logits = cases()["plain"].to(world.device)
    ours = ops.local_slice(logits, world.whole, -1).clone().requires_grad_()
    with Ledger() as forward:
        loss = cross_entropy(ours, targets().to(world.device), axis=world.whole)
    with Ledger() as backward:
        loss.sum().backward()
    same = world.whole.all_gather(loss.detach().unsqueeze(0))
    ops_of = [[entry.op for entry in ledger.entries] for ledger in (forward, backward)]
    forward, backward, same = ops_of[0], ops_of[1], bool((same == same[0]).all())
    assert forward == ["all_gather"]
    assert backward == []
    assert same


@on_ranks(2)
def test_low_precision_logits_are_reduced_in_fp32(world: World) -> None:
    """Measured: loss 1e-7 for both; gradient 1.2e-7 in fp32, 2e-3 in bf16 (it is rounded back)."""
    axis, errors = world.whole, {}
    wanted = targets().to(world.device)
    for dtype in (torch.float32, torch.bfloat16):
        whole = cases()["plain"].to(dtype).to(world.device)
        reference = whole.double().requires_grad_()
        expected = torch.nn.functional.cross_entropy(reference.flatten(0, 1), wanted.flatten())
        ours = ops.local_slice(whole, axis, -1).detach().requires_grad_()
        actual = cross_entropy(ours, wanted, axis=axis).mean()
        actual.backward()
        expected.backward()
        assert actual.dtype == torch.float32
        assert ours.grad is not None
        assert ours.grad.dtype == dtype
        errors[f"{dtype} loss"] = relative_error(actual, expected)
        found_gradient = ops.gather_along(ours.grad, axis, -1)
        errors[f"{dtype} gradient"] = relative_error(found_gradient, reference.grad)
    assert errors["torch.float32 loss"] <= 1e-6
    assert errors["torch.float32 gradient"] <= 1e-6
    assert errors["torch.bfloat16 loss"] <= 1e-6
    assert errors["torch.bfloat16 gradient"] <= 4e-3


def score_unknown_targets(world: World) -> list[float]:
    logits = ops.local_slice(cases()["plain"].to(world.device), world.whole, -1)
    wanted = targets().to(world.device).clone()
    wanted[0, 0], wanted[0, 1] = -1, V
    return [float(x) for x in cross_entropy(logits, wanted, axis=world.whole)[0]]


def test_the_loss_of_a_target_that_no_rank_holds_is_infinite(pool) -> None:
    for size in (1, 2):
        first, second, third = pool(size).run(score_unknown_targets)[0]
        assert first == math.inf
        assert second == math.inf
        assert math.isfinite(third)


@pytest.mark.parametrize("ignore_index", [-100, 0, 9])
@pytest.mark.parametrize("size", [1, 2])
@on_ranks("size")
def test_an_ignored_target_has_no_loss_and_no_gradient(world: World, ignore_index: int) -> None:
    """How far a mean over the tokens that count is off, and its gradient; one token is ignored."""
    whole = cases()["plain"].to(world.device)
    wanted = targets().to(world.device).clone()
    wanted[0] = ignore_index
    reference = whole.clone().requires_grad_()
    expected = torch.nn.functional.cross_entropy(
        reference.flatten(0, 1), wanted.flatten(), ignore_index=ignore_index
    )
    ours = ops.local_slice(whole, world.whole, -1).clone().requires_grad_()
    actual = cross_entropy(ours, wanted, axis=world.whole, ignore_index=ignore_index)
    assert actual[0].eq(0).all()
    mean = actual.sum() / (wanted != ignore_index).sum()
    mean.backward()
    expected.backward()
    gradient = ops.gather_along(ours.grad, world.whole, -1)
    errors = relative_error(mean, expected), relative_error(gradient, reference.grad)
    assert max(errors) <= EXACT
