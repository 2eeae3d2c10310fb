"""A test whose body runs on every rank of a pool."""

from __future__ import annotations

import inspect
import reprlib
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

from shardlab.comm import World


def on_ranks(ranks: int | str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate `body(world, ...)`, a module's function, to a test that runs it on every rank.

    What the body takes besides the world are fixtures and parameters of the test, as of any test.

    Args:
        ranks: how many, or the name of the test's parameter that says so.
    """

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        takes = [*inspect.signature(body).parameters][1:]
        names = dict.fromkeys(["pool", *takes] + ([ranks] if isinstance(ranks, str) else []))

        def test(**values: Any) -> None:
            count = values[ranks] if isinstance(ranks, str) else ranks
            place = body.__module__, body.__name__
            values["pool"](count).run(run_body, *place, *(values[name] for name in takes))

        test.__name__, test.__qualname__ = body.__name__, body.__qualname__
        test.__module__, test.__doc__ = body.__module__, body.__doc__
        kind = inspect.Parameter.KEYWORD_ONLY
        test.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
        test.body = body  # type: ignore[attr-defined]
        return test

    return decorate


def run_body(world: World, module: str, test: str, *values: Any) -> None:
    """Run the body of a test on this rank: workers know it by its test's name.

    Raises:
        AssertionError: with the variables that pytest would show.
    """
    try:
        getattr(import_module(module), test).body(world, *values)
    except AssertionError as error:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        for name, value in frame.f_locals.items():
            error.add_note(f"{name} = {reprlib.repr(value)}")
        raise
