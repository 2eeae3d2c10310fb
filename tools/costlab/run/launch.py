"""Measuring in processes of their own: one a rank, watched, so that a fault is one line here.

A section's `measure(world, settings)` runs on every rank alike. What rank 0 yields comes to the
parent as it is made, so a rank that dies takes nothing with it that was measured before. Where
torchrun has launched this program, its ranks are already there and are used as they are.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costlab.record.options import Settings
from costlab.record.result import Item, Load, Metric
from costlab.run.rank import Place, work

if TYPE_CHECKING:
    from shardlab.comm import World


from collections.abc import Mapping
from typing import TYPE_CHECKING

from costlab.run.rank import BACKENDS, describe_fault, in_a_line

if TYPE_CHECKING:
    from shardlab.comm import World


Measure = Callable[["World", Settings], Iterator[Item]]
Progress = Callable[[str | Load], None]

START = 120.0  # seconds for the ranks to come up: they import torch, on a machine that may be busy
GRACE = 5.0  # seconds that ranks have to say that a wait was too long
WORDS = 1.0  # seconds for the other ranks' words, once one has said that it waited in vain
TIMEOUT = 60.0

_REQUESTS = (signal.SIGINT, signal.SIGTERM)


class LaunchError(click.ClickException):
    """A launch that broke off, in one line that names the rank and the cause."""


def run(
    measure: Measure, settings: Settings, *, ranks: int, timeout: float = TIMEOUT,
    on_progress: Progress = lambda line: None,
) -> Generator[Metric]:  # fmt: skip
    """Start `ranks` fresh processes that iterate `measure`; yield rank 0's metrics as they come.

    On the CPU each rank computes with one thread and talks gloo; on "cuda" each has a GPU and NCCL.

    Args:
        measure: a module-level generator function, iterated alike on every rank.
        settings: handed to every rank.
        timeout: seconds that a collective may take, and that all ranks may say nothing for.
        on_progress: given what rank 0 yields besides.

    Raises:
        LaunchError: a rank raised, died or hangs. What it had measured has been yielded before.
        KeyboardInterrupt: so has what had come by then.
    """
    launch = _Launch(measure, settings, ranks, timeout)
    try:
        for item in launch.items():
            if isinstance(item, Metric):
                yield item
            else:
                on_progress(item)
    except KeyboardInterrupt:
        yield from launch.come()
        raise
    finally:
        launch.stop()


class _Launch:
    """The processes of one launch, and what they say."""

    def __init__(self, measure: Measure, settings: Settings, ranks: int, timeout: float) -> None:
        self._timeout = timeout
        self._folder = tempfile.TemporaryDirectory(prefix="costlab-", ignore_cleanup_errors=True)
        self._pipes: dict[Any, int] = {}
        self._workers: list[Any] = []
        self._joined = 0
        self._last = ""  # progress line
        self._held: list[Item] = []  # read, and not yet taken by whoever iterates
        self._faults: dict[int, tuple[str, str]] = {}
        context = multiprocessing.get_context("forkserver")
        # Imported once for all ranks, with what the first section needs: they fork from there.
        context.set_forkserver_preload(["torch", "shardlab.comm", measure.__module__])
        for rank in range(ranks):
            ours, child_end = context.Pipe(duplex=False)
            worker = context.Process(
                target=work,
                args=(child_end, Place(rank, ranks, self._folder.name, timeout), measure, settings),
                daemon=True,
            )
            try:
                with _without_interrupts():
                    worker.start()
            except OSError as fault:
                if "AF_UNIX path too long" not in str(fault):
                    raise
                folder = tempfile.gettempdir()
                raise LaunchError(
                    f"{folder}: too long for sockets: set TMPDIR to a shorter one"
                ) from None
            child_end.close()
            self._pipes[ours] = rank
            self._workers.append(worker)

    def items(self) -> Iterator[Item]:
        """Yield what rank 0 yields, until every rank is done.

        Raises:
            LaunchError: with the likeliest cause, after everything that came before it.
        """
        limit = time.monotonic() + START
        while self._pipes:
            ready = multiprocessing.connection.wait(
                list(self._pipes), max(0.0, limit - time.monotonic())
            )
            if not ready:
                break
            for pipe in ready:
                for item in self._messages(pipe):
                    self._last = item if isinstance(item, str) else self._last
                    yield item
            if not self._faults:
                all_here = self._joined == len(self._workers)
                limit = time.monotonic() + (self._timeout + GRACE if all_here else START)
            elif any(kind != "symptom" for kind, _ in self._faults.values()):
                limit = time.monotonic()  # a cause is known: take what has come already, and end
            else:
                limit = min(limit, time.monotonic() + WORDS)
        if self._faults:
            raise LaunchError(self._cause())
        if self._pipes:
            raise LaunchError(self._silence())

    def come(self) -> Iterator[Metric]:
        """Yield the metrics that lie in the pipes, and one that was read last; wait for none."""
        yield from (message for message in self._held if isinstance(message, Metric))
        for pipe in list(self._pipes):
            while pipe in self._pipes and pipe.poll():
                yield from (
                    message for message in self._messages(pipe) if isinstance(message, Metric)
                )

    def _messages(self, pipe: Any) -> Iterator[Item]:
        """Read one message, or find that the rank is done or gone."""
        rank = self._pipes[pipe]
        with defer_interrupts():  # a message that is read and not yet held would be lost
            try:
                kind, what = pipe.recv()
            except (EOFError, OSError):
                kind, what = "died", self._ending(rank)
            self._held = [what] if kind == "item" else []
        if kind == "item":
            yield what
            self._held = []
        elif kind == "joined":
            self._joined += 1
        else:
            del self._pipes[pipe]
            pipe.close()
            if kind != "done":
                self._faults[rank] = (kind, what)

    def _ending(self, rank: int) -> str:
        """Say how a process ended that said nothing."""
        from shardlab.comm.exit_reason import describe_exit

        worker = self._workers[rank]
        worker.join(GRACE)
        code = worker.exitcode
        if code is None or code < 0:
            return describe_exit(code)
        words = Path(self._folder.name, f"rank-{rank}.log").read_text(errors="replace").split("\n")
        last = next((line for line in reversed(words) if line.strip()), "")
        return describe_exit(code) + (f": {last.strip()}" if last else "")

    def _cause(self) -> str:
        """Return the fault that explains the others: a death, else an exception, else a symptom."""
        order = {"died": 0, "raised": 1, "symptom": 2}
        rank, (_, what) = min(self._faults.items(), key=lambda item: order[item[1][0]])
        return self._where(f"rank {rank} {what}")

    def _silence(self) -> str:
        if self._joined < len(self._workers):
            return f"{self._joined} of {len(self._workers)} ranks came up within {START:g} s"
        names = ", ".join(str(rank) for rank in sorted(self._pipes.values()))
        return self._where(f"nothing heard for {self._timeout:g} s: rank {names} hangs")

    def _where(self, line: str) -> str:
        return f"{line} (last: {self._last})" if self._last else line

    def stop(self) -> None:
        """Kill what still runs."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.join()
        for pipe in self._pipes:
            pipe.close()
        self._folder.cleanup()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: the parent ends them, quietly."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def defer_interrupts() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until the block is done; may stand within another.

    Where the block raises, the program is on its way out, and the request is forgotten. (A signal
    mask wouldn't do: any thread of gloo's may take the signal, and Python's handler then interrupts
    the main thread all the same.)
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals don't come here
        return
    signals: list[int] = []
    before = {request: signal.getsignal(request) for request in _REQUESTS}
    for request in _REQUESTS:
        signal.signal(request, lambda number, _: signals.append(number))
    try:
        yield
    finally:
        for request, handler in before.items():
            signal.signal(request, signal.SIG_DFL if handler is None else handler)
    if signals:
        signal.raise_signal(signals[0])


def launched(environment: Mapping[str, str]) -> bool:
    """Whether torchrun, or something that sets what it sets, started this process."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys()


@contextlib.contextmanager
def joined(device: str, *, timeout: float = TIMEOUT) -> Iterator[World]:
    """Join the ranks that torchrun launched, for a whole run.

    Args:
        device: "cpu" (gloo, one thread a rank) or "cuda" (NCCL).
        timeout: seconds that a collective may take.

    Raises:
        LaunchError: the rendezvous failed: a port that is in use, an address that isn't there.
    """
    import torch

    from shardlab.comm import World

    torch.set_num_threads(1)
    try:
        backend, link = BACKENDS[device]
        world = World.join(backend=backend, link=link, timeout=timeout)
    except (RuntimeError, OSError, ValueError) as fault:
        raise LaunchError(f"the ranks of torchrun can't meet: {in_a_line(fault)}") from None
    try:
        yield world
    except BaseException:
        world.failure_reporter.report("broke off")
        raise
    else:
        world.close()


def run_here(
    measure: Measure, settings: Settings, world: World, on_progress: Progress
) -> Generator[Metric]:
    """Iterate `measure` on this rank; on rank 0 yield its metrics.

    Raises:
        LaunchError: this rank raised, or saw that another is gone.
    """
    speaks = world.rank == 0
    try:
        for item in measure(world, settings):
            if not speaks:
                continue
            if isinstance(item, Metric):
                yield item
            else:
                on_progress(item)
        world.whole.barrier()
    except Exception as fault:
        raise LaunchError(f"rank {world.rank} {describe_fault(world, fault)[1]}") from None
