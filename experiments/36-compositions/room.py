"""A room of the museum: a fault where two parallelisms meet, as numbers that a body really saw.

A body runs on every rank and returns what that rank saw, by name; a room's number is the largest of
the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

Numbers = dict[str, float]
Body = Callable[[Any], Mapping[str, float]]


class Room(NamedTuple):
    """A body, and the ranks that it needs; 0: no process group, this process itself."""

    body: Body
    ranks: int


ROOMS: dict[str, Room] = {}


def room(name: str, *, ranks: int) -> Callable[[Body], Body]:
    """Let a body be a room."""

    def add(body: Body) -> Body:
        ROOMS[name] = Room(body, ranks)
        return body

    return add


def difference(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference, relative to the largest magnitude."""
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    scale = float(expected.detach().abs().max()) or 1.0
    return float((actual.detach() - expected.detach()).abs().max()) / scale


def random_like(*shape: int, seed: int) -> Tensor:
    """Return a normal tensor, the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def random_tokens(vocab: int, *shape: int, seed: int) -> Tensor:
    """Return tokens below `vocab`, the same on every rank."""
    return torch.randint(vocab, shape, generator=torch.Generator().manual_seed(seed))
