"""Ranks that raise, die, stop or hang: every other one says who and where, in time.

Real processes of their own, three a case, since the pool's workers must survive. All cases run at
once: nobody computes, everybody waits.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist

from shardlab.comm import Axis, CollectiveError, World
from shardlab.comm.host import state_of
from shardlab.links import mapped_file
from tests.limits import LIMIT
from tests.shardlab.pool import on_ranks

SIZE, VICTIM = 3, 1
TIMEOUT = 3.0  # seconds: what a rank may take to give up on one that says nothing, and say why
# A death or an exception is noticed at once, not when the collective's own time is over. That is
# longer here than the test waits, so that a rank which waits for it has nothing to say.
LONG_TIMEOUT = 4.0 * LIMIT  # seconds
LINKS = ("torch", "fast-gloo", "shared-memory")
LARGE = 1 << 20  # elements


class Case(NamedTuple):
    """What becomes of rank 1, and what the others call meanwhile."""

    what: str
    link: str
    call: str
    check: bool = False

    @property
    def timeout(self) -> float:
        return LONG_TIMEOUT if self.what in ("raises", "dies") else TIMEOUT


WORDS = {
    "raises": "rank 1 raised ValueError: bad batch 17",
    "dies": "rank 1 died (process ",
    "stops": "rank 1 is stopped (process ",
    "hangs": "rank 1 hangs elsewhere, or is late (process ",
}
CASES = [
    *[Case(what, link, "all_reduce") for what in WORDS for link in LINKS],
    *[Case("dies", link, "recv") for link in LINKS],
    Case("stops", "torch", "send"),
    Case("stops", "shared-memory", "barrier"),
    Case("stops", "torch", "all_gather", check=True),
    Case("dies", "torch", "reduce_scatter", check=True),
]


def fail(what: str) -> None:
    if what == "raises":
        raise ValueError("bad batch 17")
    if what in ("dies", "stops"):
        os.kill(os.getpid(), signal.SIGKILL if what == "dies" else signal.SIGSTOP)
    time.sleep(4 * LIMIT)


def call(axis: Axis, name: str) -> None:
    if name == "barrier":
        axis.barrier()
    elif name == "recv":
        axis.recv(torch.empty(3), VICTIM)
    elif name == "send":
        axis.send(torch.ones(LARGE), VICTIM)
    else:
        getattr(axis, name)(torch.ones(6))


def member(pipe: Any, store: str, rank: int, case: Case) -> None:
    """A rank's life: a collective that succeeds, then one that cannot."""
    torch.set_num_threads(1)
    world = World.join(
        backend="gloo", store=dist.FileStore(store, SIZE), rank=rank, size=SIZE,
        timeout=case.timeout, check=case.check,
    )  # fmt: skip
    with contextlib.suppress(ValueError, CollectiveError), world:
        axis = world.axis("tensor", range(SIZE), link=case.link)
        pipe.send("ready")
        pipe.recv()
        axis.all_reduce(torch.ones(LARGE))
        if rank == VICTIM:
            fail(case.what)
        try:
            call(axis, case.call)
        except BaseException as error:
            pipe.send((type(error).__name__, str(error)))
            raise
        pipe.send(("nothing", ""))


class End(NamedTuple):
    """How a surviving rank's run ended."""

    kind: str
    text: str


class Run:
    """The processes of one case."""

    def __init__(self, case: Case, context: Any, folder: Path) -> None:
        self.case = case
        self.pipes = []
        self.workers = []
        for rank in range(SIZE):
            parent_end, child_end = context.Pipe()
            worker = context.Process(target=member, args=(child_end, str(folder), rank, case))
            worker.start()
            child_end.close()
            self.pipes.append(parent_end)
            self.workers.append(worker)

    def ready(self) -> None:
        """Return once all ranks are about to meet their end."""
        for pipe in self.pipes:
            assert pipe.poll(LIMIT), self.case
            assert pipe.recv() == "ready", self.case

    def go(self) -> None:
        """Let all ranks go on."""
        for pipe in self.pipes:
            pipe.send("go")

    def ends(self, deadline: float) -> list[End]:
        """Return how the survivors ended."""
        ends = []
        for pipe in self.pipes[:VICTIM] + self.pipes[VICTIM + 1 :]:
            end = End("late", "says nothing")
            with contextlib.suppress(EOFError):
                if pipe.poll(max(0.0, deadline - time.monotonic())):
                    end = End(*pipe.recv())
            ends.append(end)
        return ends

    def stop(self) -> list[str]:
        """Kill what still runs; return the files that its ranks left."""
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.join()
        names = [f"shardlab-{worker.pid}-*" for worker in self.workers]
        return [path.name for name in names for path in mapped_file.folder().glob(name)]


@pytest.fixture(scope="module")
def ends() -> dict[Case, list[End]]:
    """Every case's survivors, and how each ended."""
    context = multiprocessing.get_context("forkserver")
    with TemporaryDirectory() as folder:
        runs = [Run(case, context, Path(folder) / f"store{i}") for i, case in enumerate(CASES)]
        try:
            for run in runs:
                run.ready()
            for run in runs:
                run.go()
            deadline = time.monotonic() + LIMIT
            ends_of = {run.case: run.ends(deadline) for run in runs}
        finally:
            files = [name for run in runs for name in run.stop()]
    assert files == [], "a file outlives its ranks"
    return ends_of


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_every_other_rank_names_the_rank_and_the_collective_in_time(
    ends: dict[Case, list[End]], case: Case
) -> None:
    where = {"recv": "recv from rank 1", "send": "send to rank 1"}.get(case.call, case.call)
    for end in ends[case]:
        assert end.kind == "CollectiveError", end
        assert f"{where} on the tensor axis [0, 1, 2] did not finish" in end.text
        assert WORDS[case.what] in end.text


# ---------------------------------------------------------------------- tensors that differ

ODD: dict[str, dict[str, Any]] = {
    "shape": {"x": torch.ones(3, 2)},
    "dtype": {"x": torch.ones(2, 3, dtype=torch.float64)},
    "op": {"op": "max"},
    "collective": {"name": "all_gather"},
}


@pytest.mark.parametrize("link", LINKS)
@on_ranks(2)
def test_tensors_that_differ_are_refused_before_the_backend_sees_them(
    world: World, link: str
) -> None:
    """The backend never saw them: on the same axis the next collective works."""
    axis = World(check=True, device=world.device).axis("tensor", range(world.size), link=link)
    texts = []
    for odd in ODD.values():
        arguments: dict[str, Any] = {"x": torch.ones(2, 3), "op": "sum", "name": "all_reduce"}
        if world.rank == 1:
            arguments |= odd
        options = {"op": arguments["op"]} if arguments["name"] == "all_reduce" else {}
        with pytest.raises(CollectiveError) as caught:
            getattr(axis, arguments["name"])(arguments["x"].to(world.device), **options)
        texts.append(str(caught.value))
        assert axis.all_reduce(torch.ones(1, device=world.device)).item() == world.size
    shape, dtype, op, collective = texts
    for text in texts:
        assert "rank 0: all_reduce of float32[2, 3]" in text
    assert "rank 1: all_reduce of float32[3, 2]" in shape
    assert "rank 1: all_reduce of float64[2, 3]" in dtype
    assert "rank 1: all_reduce of float32[2, 3]" in op
    assert op.count("option") == 2
    assert "rank 1: all_gather of float32[2, 3]" in collective


# ---------------------------------------------------------------------- errors that are no peer's


def call_with_bad_dtype(world: World, link: str) -> None:
    """A dtype that has no sum, found out before the backend or after it."""
    axis = world.axis("tensor", range(world.size), link=link)
    with pytest.raises(RuntimeError) as caught:  # NotImplementedError is one
        axis.all_reduce(torch.zeros(3, device=world.device).to(torch.float8_e4m3fn))
    assert not isinstance(caught.value, CollectiveError)


@pytest.mark.parametrize("link", LINKS)
def test_an_error_on_this_rank_is_not_taken_for_a_lost_peer(pool, link: str) -> None:
    pool(2).run(call_with_bad_dtype, link)
    pool(2).stop()  # what shared memory began is still under way


@pytest.mark.parametrize(("has_proc", "state"), [(False, "alive"), (True, "dead")])
def test_a_process_without_a_file_has_just_ended_unless_the_system_has_none(
    monkeypatch: pytest.MonkeyPatch, has_proc: bool, state: str
) -> None:
    def refuse(_: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", refuse)
    monkeypatch.setattr(Path, "exists", lambda _: has_proc)
    assert state_of(os.getpid()) == state
