"""Runs `shardbook` in a fork of this process, which has imported it already.

A new Python takes 0.2 s of a processor to start it, and longer where nothing is compiled yet.
"""

import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile
from typing import NoReturn

from notelab.cli import main
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
    with TemporaryFile() as lines, TemporaryFile() as printed, TemporaryFile() as errors:
        lines.write(typed.encode("utf-8"))
        lines.seek(0)
        files = [file.fileno() for file in (lines, printed, errors)]
        if not (pid := os.fork()):
            _be_shardbook(arguments, folder, environment, files)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = [os.pread(file, 1 << 26, 0).decode("utf-8") for file in files[1:]]
    return CompletedProcess(arguments, status, *texts)


def _be_shardbook(
    arguments: tuple[str, ...], folder: Path, environment: Mapping[str, str], files: list[int]
) -> NoReturn:
    status: object = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["shardbook", *arguments]
        main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1)
