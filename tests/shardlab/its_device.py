"""A rank's device as torch's default, so that a test body says so nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

from shardlab.comm import World


def its_device(world: World) -> AbstractContextManager[Any]:
    """Let torch make new tensors on the rank's device.

    On the CPU they are made there anyway, and `with torch.device("cpu")` would send every operation
    through Python for nothing.
    """
    return nullcontext() if world.device.type == "cpu" else world.device


def on_its_device(body: Callable[..., Any]) -> Callable[..., Any]:
    """Run a body so."""

    @wraps(body)
    def run(world: World, *args: Any) -> Any:
        with its_device(world):
            return body(world, *args)

    return run
