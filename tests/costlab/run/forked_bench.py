"""The bench's command line in forks of this process, which has imported what a run imports.

The ranks of all runs come from one fork server, as those of one run do. `counts` is the broken
section. Processes that start afresh, as a user's do, are in the tests that only CI runs.
"""

import os
import sys
import tempfile
from functools import partial
from multiprocessing import forkserver, get_context
from pathlib import Path
from subprocess import CompletedProcess

import costlab.run.run  # noqa: F401  (a fork has it)
from costlab.cli import main
from costlab.sections import plan
from tests.costlab.run import broken_section
from tests.forked import run_forked

ROOT = Path(__file__).parents[3]
PATH = os.pathsep.join([str(ROOT), str(ROOT / "tools")])


def run_bench(
    folder: Path, *words: str, more: str = "", **environment: str
) -> "CompletedProcess[str]":
    """Run `bench WORDS --out FOLDER/one.json`; return what `subprocess.run` would.

    Args:
        folder: for temporary files too.
        more: a program to run before, which may replace parts of the bench.
        environment: FAULT and others, in addition to those of this process.
    """

    def act() -> None:
        tempfile.tempdir = None
        forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]
        plan.MODULES["counts"] = broken_section.__name__
        # The ranks' environment is the fork server's.
        measure = partial(broken_section.measure, fault=os.environ["FAULT"], bench=os.getpid())
        broken_section.PLAN = plan.Plan(measure, ranks=lambda _: (2,))
        exec(more, {"os": os})
        sys.argv = ["bench", *words, "--out", str(folder / "one.json")]
        main()

    get_context("forkserver").set_forkserver_preload(["torch", "shardlab.comm"])
    forkserver.ensure_running()
    variables = os.environ | {"TMPDIR": str(folder)} | environment
    return run_forked(act, folder=ROOT, environment=variables)
