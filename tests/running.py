"""Runs a program to its end, as most tests do."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.limits import LIMIT


def run_program(
    command: Sequence[str | Path], *, check: bool = False, **settings: Any
) -> "subprocess.CompletedProcess[str]":
    """Return what a program printed, as text, and its status; only a hang ends it early.

    Args:
        command: the program and its arguments.
        check: another status than 0 is an error.
        settings: of `subprocess.run`.
    """
    settings = {"timeout": LIMIT, "encoding": "utf-8"} | settings
    return subprocess.run(command, check=check, capture_output=True, **settings)
