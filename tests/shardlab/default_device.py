"""A rank's device as torch's default: a test body then names no device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

from shardlab.comm import World


def default_device(world: World) -> AbstractContextManager[Any]:
    """Return a context in which torch makes new tensors on the device of `world`.

    On the CPU they are made there anyway, and `with torch.device("cpu")` would send every operation
    through Python for nothing.
    """
    return nullcontext() if world.device.type == "cpu" else world.device


def on_default_device(body: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate `body(world, *args)` so that it runs under `default_device(world)`."""

    @wraps(body)
    def run(world: World, *args: Any) -> Any:
        with default_device(world):
            return body(world, *args)

    return run
