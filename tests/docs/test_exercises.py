"""A learner's answers keep their style: the hook's linter leaves exercises alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.page import ROOT

UNUSED = "import os,sys\nx = lambda a : a\n"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("experiments/35-write-it/linears.py", 0),
        ("experiments/35-write-it/replicas.py", 0),
        ("experiments/35-write-it/unit.py", 0),
        ("experiments/37-batches/mine.py", 0),
        ("experiments/35-write-it/grade.py", 1),
    ],
)
def test_only_exercises_are_exempt_from_style(path: str, status: int) -> None:
    assert (ROOT / path).is_file()
    ruff = [sys.executable, "-m", "ruff", "check", "--force-exclude", "--stdin-filename", path, "-"]
    done = subprocess.run(ruff, input=UNUSED, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == status, done.stdout
