"""torchrun's summary ends with the sentence that says what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shardlab.comm import exit_reason
from tests.docs.page import ROOT
from tests.limits import LIMIT

RUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (["experiments/35-three-d/train.py", "--tp", "3", "--cpu"], "needs 3 ranks"),
        (["experiments/36-experts/route.py", "--experts", "3"], "a world of 2"),
        (["-m", "costlab", "tp", "--hidden", "7"], "hidden"),
        (["--nproc-per-node=3", "experiments/38-long-sequences/attend.py"], "don't cut a sequence"),
    ],
    ids=["train.py", "route.py", "the bench", "attend.py"],
)
def test_the_summary_of_torchrun_ends_with_the_reason(program: list[str], reason: str) -> None:
    done = subprocess.run(
        [*RUN, *program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert done.returncode
    *_, last, line = done.stderr.strip().splitlines()
    assert set(line.strip()) == {"="}
    assert reason in last, done.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [(-9, "was killed by SIGKILL (out of memory?)"), (-6, "was killed by SIGABRT"),
     (3, "ended with status 3"), (None, "closed its pipe")],
)  # fmt: skip
def test_an_exit_code_is_told_in_words(code: int | None, words: str) -> None:
    assert exit_reason.describe_exit(code) == words


def test_without_torchrun_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(exit_reason.FILE, raising=False)
    monkeypatch.chdir(tmp_path)
    exit_reason.report_reason("--tp 3 needs 3 ranks")
    assert not list(tmp_path.iterdir())
