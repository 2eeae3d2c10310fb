"""Persistent workers: n processes on gloo, one thread each, that run a test body on every rank.

A spawn with `import torch` costs seconds, a message to a living worker milliseconds. A body is a
module-level function whose first argument is the rank's `World`. If a rank raises, or a body takes
longer than its time, the whole pool is killed, and started again for the next test
(`shardlab.parity.session`).
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import io
import multiprocessing
import multiprocessing.forkserver
import os
import pickle
import reprlib
import traceback
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from shardlab.parity import session
from tests.limits import LIMIT
from tests.shardlab.default_device import on_default_device

if TYPE_CHECKING:
    from shardlab.comm import World

PRELOAD = ["tests.shardlab.preload"]


def preload() -> None:
    """Start the process that all workers are forked from; it imports while the caller goes on."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    multiprocessing.forkserver.ensure_running()


class Pool(session.Workers):
    """Workers of one world size.

    Args:
        size: ranks.
        device: "cpu" or "cuda" (the ranks share the GPUs there are, over gloo if too few).
    """

    def __init__(self, size: int, device: str = "cpu") -> None:
        super().__init__(size, join=join, settings=(device,), preload=PRELOAD)
        session.pickle = PICKLE  # type: ignore[attr-defined]

    def run(self, body: Callable[..., Any], *args: Any, timeout: float = LIMIT) -> list[Any]:
        """Run `body(world, *args)` on every rank; return what each returned, in rank order.

        Raises:
            Failed: (pytest's) a rank raised, died or ran out of time; with every traceback.
        """
        answers = self.call(body, *args, timeout=timeout)
        wrong = [f"rank {r}:\n{a.value}" for r, a in enumerate(answers) if a.kind != "returned"]
        if wrong:
            pytest.fail(f"{body.__name__} on {self.size} ranks\n" + "\n".join(wrong), pytrace=False)
        return [answer.value for answer in answers]


class TensorPickler(pickle.Pickler):
    """Pickles a tensor as NumPy's array: torch's own way takes 15 times as long."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor:
            with contextlib.suppress(RuntimeError, TypeError):  # a GPU's, one in a graph, bfloat16
                return torch.from_numpy, (value.numpy(),)
        return NotImplemented


def dumps(value: Any) -> bytes:
    buffer = io.BytesIO()
    TensorPickler(buffer).dump(value)
    return buffer.getvalue()


PICKLE = SimpleNamespace(dumps=dumps, loads=pickle.loads)  # in the place of the workers' module


def join(port: int, rank: int, size: int, device: str) -> World:
    """Join the other workers."""
    import torch.distributed as dist

    from shardlab.comm import World

    session.pickle = PICKLE  # type: ignore[attr-defined]
    torch.set_num_threads(1)
    gc.set_threshold(20_000)  # a collection every 700 objects took 4 % of the suite's time
    take_turns()
    _share_gloo_device()
    place = None
    if device == "cuda":
        place = torch.device("cuda", rank % torch.cuda.device_count())
    enough = device == "cuda" and torch.cuda.device_count() >= size
    return World.join(
        backend="nccl" if enough else "gloo",
        device=place,
        store=dist.TCPStore("127.0.0.1", port, size, is_master=False),
        rank=rank,
        size=size,
        timeout=LIMIT / 2,  # so that a rank says what it waits for before the pool gives up
        # More ranks than cores: eight ranks wait for 224 messages of one all-reduce over gloo.
        link="torch" if device == "cuda" or size <= 4 else "shared-memory",
    )


def take_turns() -> None:
    """Ask Linux not to interrupt whoever runs for whoever wakes up.

    A message over gloo wakes several threads in turn, and with eight ranks on two cores they cut
    each other short: as batch jobs their all-reduce of 1 KiB takes a third of the time
    (docs/reference/kernels-speed.md).
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(PermissionError):  # where it is forbidden: only slower
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _share_gloo_device() -> None:
    """Let all of this process's gloo groups wait in one thread, not in one each.

    torch gives every group a device of its own, whose thread looks a hundred times a second. With
    the oracles' groups, hundreds for eight ranks, that took a third of the processors.
    """
    from torch.distributed import distributed_c10d as c10d

    device = c10d.ProcessGroupGloo.create_default_device()

    class Gloo(c10d.ProcessGroupGloo):
        def __init__(self, store: Any, rank: int, size: int, timeout: Any, **later: bool) -> None:
            assert not any(later.values()), later  # torch 2.15's enable_reconfigure=False
            options = self._Options()
            options._devices, options._timeout = [device], timeout
            super().__init__(store, rank, size, options)

    c10d.ProcessGroupGloo = Gloo


def on_ranks(
    ranks: int | str, *, default_device: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate `body(world, ...)`, a module's function, to a test that runs it on every rank.

    What the body takes besides the world are fixtures and parameters of the test, as of any test.

    Args:
        ranks: how many, or the name of the test's parameter that says so.
        default_device: whether torch makes new tensors on the rank's device.
    """

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        body = on_default_device(body) if default_device else body
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
