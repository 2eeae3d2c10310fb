"""Runs `shardbook` within this process, which has imported it already.

A new Python takes 0.2 s of a processor to start the checker; a fork takes ten times as long as what
most tests have checked.
"""

import gc
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile
from types import SimpleNamespace

import pytest

from notelab import cli
from notelab.audit.repository import Repository


def run_shardbook(
    *arguments: str, folder: Path, environment: Mapping[str, str], typed: str = ""
) -> "CompletedProcess[str]":
    """Return what a command, and each program that it started, printed, and its status.

    Args:
        arguments: the command's words, after `shardbook`.
        folder: where it runs.
        environment: all its environment variables.
        typed: its standard input.
    """
    variables, own_files = dict(os.environ), [os.dup(number) for number in range(3)]
    with TemporaryFile() as lines, TemporaryFile() as printed, TemporaryFile() as errors:
        lines.write(typed.encode("utf-8", "surrogateescape"))
        lines.seek(0)
        for number, file in enumerate((lines, printed, errors)):
            os.dup2(file.fileno(), number)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                patch.setattr(cli, "os", SimpleNamespace(**vars(os) | {"_exit": sys.exit}))
                patch.setattr(sys, "argv", ["shardbook", *arguments])
                for number, name in enumerate(("stdin", "stdout", "stderr")):
                    stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115
                    patch.setattr(sys, name, stream)
                os.environ.clear()
                os.environ.update(environment)
                status = _run_to_its_end()
        finally:
            os.environ.clear()
            os.environ.update(variables)
            for number, own_file in enumerate(own_files):
                os.dup2(own_file, number)
                os.close(own_file)
        texts = [os.pread(file.fileno(), 1 << 26, 0).decode("utf-8") for file in (printed, errors)]
    return CompletedProcess([], status, *texts)


def _run_to_its_end() -> int:
    try:
        cli.main()
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        gc.enable()  # a command runs without
        for method in vars(Repository).values():  # an audit's, with git's processes
            if hasattr(method, "cache_clear"):
                method.cache_clear()
