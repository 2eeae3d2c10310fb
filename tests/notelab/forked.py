"""Runs `shardbook` in a fork of this process, which has imported it already."""

import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

from notelab.cli import main
from tests.forked import run_forked
from tests.running import run_program


def run_shardbook(
    *arguments: str, folder: Path, environment: Mapping[str, str], typed: str = ""
) -> "CompletedProcess[str]":
    """Return what a command printed, and its status.

    Args:
        arguments: the command's words, after `shardbook`.
        folder: where it runs.
        environment: all its environment variables.
        typed: its standard input.
    """
    if sys.platform != "linux":  # elsewhere the system's libraries may not survive a fork
        command = [sys.executable, "-m", "notelab", *arguments]
        return run_program(command, cwd=folder, env=dict(environment), input=typed)

    def act() -> None:
        sys.argv = ["shardbook", *arguments]
        main()

    return run_forked(act, folder=folder, environment=environment, typed=typed)
