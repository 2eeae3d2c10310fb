"""A launch returns the measured metrics, and says in one line which rank failed, and how."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from costlab.record.options import Settings
from costlab.record.result import Metric
from costlab.run import launch
from costlab.run.launch import LaunchError
from shardlab.comm import World
from shardlab.comm.host import state_of
from tests.limits import LIMIT


def make_count(name: str, value: float) -> Metric:
    return Metric(id=name, value=value, unit="count", how="counted")


def add_ranks(world: World, settings: Settings) -> Iterator[Metric | str]:
    yield f"{world.size} ranks"
    total = world.whole.all_reduce(torch.tensor([float(world.rank + settings.seed)]))
    yield make_count("sum", total.item())
    yield make_count("threads", torch.get_num_threads())
    print("said by a library, to nobody")


def test_metrics_of_rank_0_and_its_progress_arrive(capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    metrics = list(launch.run(add_ranks, Settings(seed=10), ranks=3, on_progress=lines.append))
    assert [(m.id, m.value) for m in metrics] == [("sum", 33.0), ("threads", 1.0)]
    assert lines == ["3 ranks"]
    assert capfd.readouterr() == ("", "")


def break_rank(world: World, settings: Settings) -> Iterator[Metric | str]:
    """Yield one metric; then rank 1 fails as the profile says."""
    yield make_count("before", 1)
    world.whole.barrier()
    yield "half-way"
    world.whole.barrier()  # rank 0 has said so
    if world.rank == 1:
        FAULTS[settings.profile]()
    world.whole.barrier()
    yield make_count("after", 1)


def raise_an_error() -> None:
    raise ValueError("hidden 3 is not divisible\nby 2 ranks")


FAULTS = {
    "raised": raise_an_error,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "aborted": os.abort,
    "left": lambda: os._exit(3),
    "hangs": lambda: threading.Event().wait(),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


def run_broken(profile: str, *, timeout: float = LIMIT) -> tuple[list[str], str]:
    metrics = launch.run(break_rank, Settings(profile=profile), ranks=2, timeout=timeout)
    seen: list[str] = []
    with pytest.raises(LaunchError) as fault:
        seen.extend(metric.id for metric in metrics)
    return seen, str(fault.value)


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("raised", "rank 1 raised ValueError: hidden 3 is not divisible by 2 ranks"),
        ("killed", "rank 1 was killed by SIGKILL"),
        pytest.param("aborted", "rank 1 was killed by SIGABRT", marks=pytest.mark.ci),
        pytest.param("left", "rank 1 ended with status 3", marks=pytest.mark.ci),
    ],
)
def test_a_rank_that_ends_is_named_with_the_cause(profile: str, words: str) -> None:
    seen, line = run_broken(profile)
    assert seen == ["before"]
    assert line.startswith(words)
    assert line.endswith("(last: half-way)")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("hangs", "rank 1 hangs"),
        pytest.param("stopped", "rank 1 is stopped", marks=pytest.mark.ci),
    ],
)
def test_a_rank_that_does_not_end_is_named_by_those_that_wait(profile: str, words: str) -> None:
    seen, line = run_broken(profile, timeout=4.0)
    assert seen == ["before"]
    assert words in line
    assert "\n" not in line


def hangs_in_torchs_own(world: World, settings: Settings) -> Iterator[Metric | str]:
    """Call torch.distributed as an author's section might; its errors name no rank."""
    yield make_count("before", 1)
    if world.rank == 1:
        threading.Event().wait()
    dist.all_reduce(torch.zeros(1))


@pytest.mark.ci
def test_who_waits_in_vain_in_torchs_own_calls_names_the_rank_too() -> None:
    with pytest.raises(LaunchError, match=r"rank 0 waited in vain: .* rank 1 hangs"):
        list(launch.run(hangs_in_torchs_own, Settings(), ranks=2, timeout=4.0))


def all_hang(world: World, settings: Settings) -> Iterator[Metric | str]:
    yield make_count("before", 1)
    threading.Event().wait()


def test_silence_of_all_ranks_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE", 0.5)
    seen = []
    with pytest.raises(LaunchError, match=r"nothing heard for 1 s: rank 0, 1"):
        for metric in launch.run(all_hang, Settings(), ranks=2, timeout=1.0):
            seen.append(metric.id)
    assert seen == ["before"]


def says_where(world: World, settings: Settings) -> Iterator[Metric | str]:
    yield make_count("pid", os.getpid())
    threading.Event().wait()


def test_a_reader_that_stops_early_leaves_no_process() -> None:
    metrics = launch.run(says_where, Settings(), ranks=2)
    pid = int(next(metrics).value)
    metrics.close()
    assert state_of(pid) == "dead"


def goes_on(world: World, settings: Settings) -> Iterator[Metric | str]:
    """Report progress, measure one more metric, and write a file about it."""
    yield "on"
    yield make_count("unread", 1)
    if world.rank == 0:
        Path(settings.profile).touch()
    threading.Event().wait()


def test_what_was_measured_but_not_yet_read_outlives_an_interrupt(tmp_path: Path) -> None:
    word = tmp_path / "word"

    def interrupted(_: str) -> None:
        while not word.exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    metrics = launch.run(goes_on, Settings(profile=str(word)), ranks=1, on_progress=interrupted)
    assert next(metrics).id == "unread"
    with pytest.raises(KeyboardInterrupt):
        next(metrics)


def test_more_ranks_than_gpus_is_said_in_numbers() -> None:
    gpus = torch.cuda.device_count()
    with pytest.raises(LaunchError, match=f"{gpus + 1} ranks want a GPU each; there are {gpus}"):
        list(launch.run(add_ranks, Settings(device="cuda"), ranks=gpus + 1))
