"""Many diagrams are parsed by several processes, which give the same answers as one."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from notelab.cache import CacheFile
from notelab.mermaid import engine as engine_module
from notelab.mermaid import parallel
from notelab.mermaid import parsed_diagrams as diagrams
from notelab.mermaid.engine import EngineThread
from notelab.mermaid.parsed_diagrams import Diagrams, Parsed
from tests.limits import LIMIT
from tests.notelab.mermaid.diagram_corpus import BROKEN, VALID
from tests.notelab.scratch import Scratch

TEXTS = [text for text, *_ in (*VALID.values(), *BROKEN.values())]


# Counting the working days of nine million takes mermaid longer than a diagram may.
SLOW = "gantt\n dateFormat YYYY-MM-DD\n excludes weekends\n section a\n t{}: 2000-01-01, 9999999d\n"
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="processes are read in /proc")


def _die(pipe: Connection) -> None:
    os._exit(1)


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds, but at most some seconds; return whether it holds."""
    end = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(0.02)  # between two looks at /proc
    return holds


def _processor_seconds(pid: int) -> float:
    """Return the seconds of a processor that a process has used; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return 0.0 if fields[0] == "Z" else int(fields[11]) / os.sysconf("SC_CLK_TCK")


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    try:
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except OSError:
        return []


def no_progress(what: str, done: int, of: int) -> None:
    """Print nothing."""


def test_several_processes_give_the_answers_of_one() -> None:
    progress: list[tuple[int, int]] = []
    assert len(TEXTS) >= diagrams.MIN_FOR_PROCESSES
    prefetched = Diagrams(CacheFile(None))
    prefetched.prefetch([*TEXTS, *TEXTS], lambda _, done, of: progress.append((done, of)))
    assert progress[-1] == (len(TEXTS), len(TEXTS))  # a text that stands twice is parsed once
    answers = {text: prefetched.parse(text) for text in TEXTS}
    assert prefetched._engine is None, "all of them were parsed ahead"
    alone = Diagrams(CacheFile(None))
    assert {text: alone.parse(text) for text in TEXTS} == answers


def test_few_diagrams_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "parse_all", lambda texts: pytest.fail("a process for so few"))
    Diagrams(CacheFile(None)).prefetch(TEXTS[: diagrams.MIN_FOR_PROCESSES - 1], no_progress)


def test_a_process_that_dies_leaves_its_diagrams_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "serve", _die)
    shared = Diagrams(CacheFile(None))
    shared.prefetch(TEXTS, no_progress)
    assert shared.parse(TEXTS[0]) is not None


def test_processes_stop_where_the_budget_of_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagrams, "_MAX_SECONDS", 0.0)
    monkeypatch.setattr(diagrams, "_SECONDS_EACH_OF_MANY", 0.0)
    progress: list[int] = []
    shared = Diagrams(CacheFile(None))
    shared.prefetch(TEXTS, lambda _, done, of: progress.append(done))
    assert len(progress) == 1
    assert sum(shared.parse(text) is None for text in TEXTS) == len(TEXTS) - progress[0]
    assert "on diagrams" in shared.unavailable_reason


@pytest.mark.parametrize(("each", "stops"), [(0.05, False), (0.2, True)])
def test_very_many_are_parsed_also_where_one_costs_twice_as_much(
    monkeypatch: pytest.MonkeyPatch, each: float, stops: bool
) -> None:
    settled = Parsed(ok=True)
    answers = ((str(at), settled, each) for at in range(2000))
    monkeypatch.setattr(parallel, "parse_all", lambda texts: answers)
    progress: list[int] = []
    Diagrams(CacheFile(None)).prefetch(
        [*map(str, range(2000))], lambda _, done, of: progress.append(done)
    )
    assert (progress[-1] < 2000) is stops


def test_sixty_slow_diagrams_end_at_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagrams, "_BASE_SECONDS", 1.0)
    monkeypatch.setattr(parallel.os, "cpu_count", lambda: 1)  # one process is enough for this
    done: list[int] = []
    shared = Diagrams(CacheFile(None))
    texts = [SLOW.format(number) for number in range(diagrams.MIN_FOR_PROCESSES)]
    shared.prefetch(texts, lambda _, parsed, of: done.append(parsed))
    # Each takes two seconds, of one that the run has, and brings a quarter more.
    assert 1 <= len(done) <= 2
    assert shared.parse(texts[-1]) is None or shared.parse(texts[0]) is None
    assert "simplify the slow ones" in shared.unavailable_reason


def test_ctrl_c_does_not_wait_for_a_slow_diagram(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "SECONDS", 3.0)
    engine = EngineThread()
    engine.parse("flowchart TD\n a-->b\n")
    began = time.process_time()

    def interrupt() -> None:
        parses = _wait_until(lambda: time.process_time() - began > 0.5, LIMIT)
        assert parses
        os.kill(os.getpid(), signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        engine.parse(SLOW.format(0))
    assert engine._answers.empty(), "the diagram is still being parsed"
    helper.join()


@linux_only
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.ci)]
)
def test_a_check_that_is_ended_leaves_no_process(scratch: Scratch, number: signal.Signals) -> None:
    blocks = (
        f"```mermaid\n{SLOW.format(at)}```\n" for at in range(diagrams.MIN_FOR_PROCESSES + 20)
    )
    scratch.write("note.md", scratch.read("note.md") + "\n" + "\n".join(blocks))
    check = subprocess.Popen(
        [sys.executable, "-m", "notelab", "check", "--offline"],
        cwd=scratch.book,
        env={**os.environ, "SHARDBOOK_CACHE": str(scratch.root / "cache")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    started: list[int] = []

    def parses() -> bool:
        started[:] = _children(check.pid)
        return any(_processor_seconds(pid) > 1.2 for pid in started)

    try:
        assert _wait_until(parses, LIMIT), "the check began to parse its diagrams"
        check.send_signal(number)
        # Two seconds are promised; the bound leaves a factor of four to a slow machine.
        assert _wait_until(lambda: check.poll() is not None, LIMIT), "the check itself ended"
        remaining = lambda: [pid for pid in started if _is_alive(pid)]  # noqa: E731
        assert _wait_until(lambda: not remaining(), LIMIT), f"{remaining()} of {started} are alive"
    finally:
        for pid in (check.pid, *started):
            if _is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        check.wait()
