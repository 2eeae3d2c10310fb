"""Which link an axis may have: a world on a GPU has none that carries CPU tensors only."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardlab.comm import World


def ask_for_cpu_link(world: World, link: str) -> str:
    on_gpu = World(device=torch.device("cuda", 0))
    with pytest.raises(ValueError) as caught:
        on_gpu.axis("tensor", range(world.size), link=link)
    return str(caught.value)


@pytest.mark.parametrize("link", ["fast-gloo", "shared-memory"])
def test_a_world_on_a_gpu_is_refused_a_link_for_cpu_tensors(pool: Any, link: str) -> None:
    message = (
        f'the link "{link}" carries CPU tensors, and this world is on cuda:0: choose link="torch"'
    )
    assert pool(2).run(ask_for_cpu_link, link) == [message] * 2
