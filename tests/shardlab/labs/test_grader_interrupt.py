"""Ctrl-C ends the grader of lab 00b at once, without a traceback of any of its processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.page import ROOT
from tests.limits import LIMIT

FILES = ROOT / "experiments" / "35-write-it"


@pytest.mark.ci
def test_ctrl_c_ends_the_grader_without_a_traceback(tmp_path: Path) -> None:
    folder = shutil.copytree(FILES, tmp_path / "mine")
    begun = tmp_path / "begun"
    slow = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(600)\n"
    (folder / "linears.py").write_text(slow, "utf-8")
    process = subprocess.Popen(
        [sys.executable, folder / "grade.py", "linears"], text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    while not begun.exists() and process.poll() is None:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to every process
    output, _ = process.communicate(timeout=LIMIT)
    assert (process.returncode, output.strip()) == (130, "interrupted")
