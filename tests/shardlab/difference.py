"""How alike two computations are, as one number a quantity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

TOLERANCE = 1e-12  # relative, in fp64: some thousand roundings of the last bit
SHOWN = 12


def difference(actual: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest magnitude; infinite between unlike tensors."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    expected = expected.detach().to(actual.device)
    scale = float(expected.abs().max()) or 1.0
    return float((actual.detach() - expected).abs().max()) / scale


def differences(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, float]:
    """One number a name; infinite for a name that only one side has."""
    return {
        name: difference(actual[name], expected[name])
        if name in actual and name in expected
        else float("inf")
        for name in sorted({*actual, *expected})
    }


def list_exceeding(
    ranks: Iterable[Mapping[str, Mapping[str, float]]], tolerance: float = TOLERANCE
) -> list[str]:
    """What of {case: {quantity: difference}}, from every rank, is too far off."""
    return [
        f"rank {rank}, {case}: {quantity} differs by {value:.1e}"
        for rank, cases in enumerate(ranks)
        for case, quantities in cases.items()
        for quantity, value in quantities.items()
        if not value <= tolerance
    ]


def demand_alike(
    ranks: Iterable[Mapping[str, Mapping[str, float]]], tolerance: float = TOLERANCE
) -> None:
    """Fail with what is `list_exceeding`, a dozen of them."""
    wrong = list_exceeding(ranks, tolerance)
    more = [f"… and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
    assert not wrong, "\n".join(["too far apart:", *wrong[:SHOWN], *more])


def random_like(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The same normal tensor wherever the seed is the same, on torch's default device."""
    generator = torch.Generator("cpu").manual_seed(seed)
    drawn = torch.randn(*shape, generator=generator, dtype=dtype, device="cpu")
    return drawn.to(torch.get_default_device())


def random_tokens(vocab: int, *shape: int, seed: int) -> Tensor:
    """The same integers 0 … vocab − 1 wherever the seed is the same, on torch's default device."""
    generator = torch.Generator("cpu").manual_seed(seed)
    drawn = torch.randint(vocab, shape, generator=generator, device="cpu")
    return drawn.to(torch.get_default_device())
