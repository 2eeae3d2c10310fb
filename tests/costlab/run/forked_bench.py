"""The bench's command line in forks of one process, which has imported what a run imports.

The ranks of all runs come from one fork server, as those of one run do. `counts` is the broken
section. Processes that start afresh, as a user's do, are in the tests that only CI runs.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PATH = os.pathsep.join([str(ROOT), str(ROOT / "tools")])
SECTION = "tests.costlab.run.broken_section"


class BenchServer:
    """Asks the process that forks."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, folder: Path, *words: str, more: str = "", **environment: str) -> Any:
        """Run `bench WORDS --out FOLDER/one.json`; return what `subprocess.run` would.

        Args:
            folder: for temporary files too.
            more: a program to run before, which may replace parts of the bench.
            environment: FAULT and others, besides those of this process.
        """
        output, errors = folder / "stdout", folder / "stderr"
        request = {
            "words": [*words, "--out", str(folder / "one.json")],
            "more": more,
            "environment": os.environ | {"TMPDIR": str(folder)} | environment,
            "files": [os.devnull, str(output), str(errors)],
        }
        assert self._process.stdin and self._process.stdout
        print(json.dumps(request), file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        return subprocess.CompletedProcess(words, status, output.read_text(), errors.read_text())


@contextmanager
def serve_bench() -> Iterator[BenchServer]:
    """Start the process that forks; it ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.costlab.run.bench_server"], cwd=ROOT, text=True,
        env=os.environ | {"PYTHONPATH": PATH}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield BenchServer(process)
        assert process.stdin
        process.stdin.close()


def run_bench(request: dict[str, Any]) -> None:
    """Act as the bench's process, whose ranks come from the fork server that is there."""
    from costlab.cli import main
    from costlab.sections import plan
    from tests.costlab.run import broken_section

    for number, name in enumerate(request["files"]):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]
    plan.MODULES["counts"] = SECTION
    # The ranks' environment is the fork server's.
    measure = partial(broken_section.measure, fault=os.environ["FAULT"], bench=os.getpid())
    broken_section.PLAN = plan.Plan(measure, ranks=lambda _: (2,))
    exec(request["more"], {"os": os})
    sys.argv = ["bench", *request["words"]]
    main()


def serve() -> None:
    """Read a request a line; answer each with its fork's exit status."""
    import costlab.cli
    import costlab.run.run  # noqa: F401
    import tests.costlab.run.broken_section  # noqa: F401

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "shardlab.comm", SECTION])
    forkserver.ensure_running()
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            status = 1
            try:
                run_bench(json.loads(line))
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
