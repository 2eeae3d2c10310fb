"""Runs a command of this project in a fork of this process, which has imported it already.

A new Python takes 0.2 s of a processor to start the checker, and seconds where torch is imported.
"""

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile


def run_forked(
    act: Callable[[], object], *, folder: Path, environment: Mapping[str, str], typed: str = ""
) -> "CompletedProcess[str]":
    """Return what a function printed in a fork, and the status with which it ended.

    Args:
        act: what the fork does; a program's status is that of its `SystemExit`.
        folder: where it runs.
        environment: all its environment variables.
        typed: its standard input.
    """
    with TemporaryFile() as lines, TemporaryFile() as printed, TemporaryFile() as errors:
        lines.write(typed.encode("utf-8"))
        lines.seek(0)
        files = [file.fileno() for file in (lines, printed, errors)]
        if not (pid := os.fork()):
            _act_in_fork(act, folder, environment, files)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = [os.pread(file, 1 << 26, 0).decode("utf-8") for file in files[1:]]
    return CompletedProcess([], status, *texts)


def _act_in_fork(
    act: Callable[[], object], folder: Path, environment: Mapping[str, str], files: list[int]
) -> None:
    status: object = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        act()
        status = 0
    except SystemExit as end:
        status = 0 if end.code is None else end.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1)
