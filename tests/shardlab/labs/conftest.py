"""Ranks for the tests of lab pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pages import ranks
from pages.runs import lab_01
from shardlab.comm import World
from tests.shardlab.pool import Pool


def run_seeded(world: World, body: Callable[..., Any], *arguments: Any) -> Any:
    """Run a body as `run_on_ranks` does in a new process."""
    torch.manual_seed(0)
    return body(world, *arguments)


@pytest.fixture
def pages_on_pool(pool: Callable[[int], Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tools that write lab pages run their ranks in the pool, not in new processes."""
    for tool in (lab_01, ranks):
        monkeypatch.setattr(
            tool, "run_on_ranks", lambda size, *call: pool(size).run(run_seeded, *call)
        )
