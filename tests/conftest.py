"""Hooks and fixtures that all tests share: refused skips, and pools of workers."""

import gc
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.thinning import leave_combinations_to_ci

if TYPE_CHECKING:
    from tests.shardlab.pool import Pool

gc.disable()  # until all is collected, of which nothing is garbage
# Before numpy is imported: a second thread of a small matrix product spins more than it computes.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", default="cpu", choices=("cpu", "cuda"), help="where shardlab's tests run"
    )
    parser.addoption(
        "--quick", action="store_true", help="of a benchmark, a small part, once, unjudged"
    )


def pytest_configure() -> None:
    keep_temporary_files_in_memory()
    settings.register_profile("any machine", deadline=None)  # no test holds a time
    settings.load_profile("any machine")
    # A shell that starts a job in the background has it ignore Ctrl-C, and so would every child.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def keep_temporary_files_in_memory() -> None:
    """Use Linux's folder in memory for temporary files, unless it is small or runs no programs.

    On a disk, to write the 54 files of a checker's test takes ten times as long.
    """
    memory = "/dev/shm"
    if os.access(memory, os.W_OK) and "TMPDIR" not in os.environ:
        runs_programs = not os.statvfs(memory).f_flag & os.ST_NOEXEC
        if runs_programs and shutil.disk_usage(memory).free > 4 << 30:
            os.environ["TMPDIR"] = tempfile.tempdir = memory


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_combinations_to_ci(items)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


COUNTED = tuple(
    f"tests/costlab/{where}" for where in ("judge/", "publish/", "sections/test_counts.py")
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under `pytest -n 3`, keep together what shares slow things; other files go one by one.

    shardlab's tests share their pools of workers, the site's a browser (but for the look at each of
    its pages, half of that work), the judge's and the pages' what two and four ranks count.
    (xdist's own groups, `--dist loadgroup`, are lost on pytest 9.2.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByRoom(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.startswith(COUNTED):
                return "counted"
            if file.endswith("/test_every_page.py"):
                return file
            room = file.split("/")[1]
            return room if room in ("shardlab", "site") else file

    return ByRoom(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if not item.get_closest_marker("may_skip"):
        refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Refuse the skip of a whole module too, because its tests are never collected."""
    report = yield
    refuse_skip(report)
    return report


def refuse_skip(report: Any) -> None:
    """Turn a skip into a failure where CI expects none."""
    if report.skipped and os.environ.get("SHARDBOOK_EXPECT_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"skipped where no skip is expected: {report.longrepr}"


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def pool(device: str) -> Iterator[Callable[[int], "Pool"]]:
    """Pools of workers by world size, shared by all tests of the session."""
    from tests.shardlab.pool import Pool  # imports torch, which takes seconds

    pools: dict[int, Pool] = {}

    def of(size: int) -> "Pool":
        return pools.setdefault(size, Pool(size, device))

    yield of
    for each in pools.values():
        each.stop()


@pytest.fixture
def quick(request: pytest.FixtureRequest) -> bool:
    """Whether a benchmark measures a small part only, which publishes nothing.

    A published number names a commit. If the code differs from the commit, nothing is measured.
    """
    is_quick = bool(request.config.getoption("--quick"))
    root = Path(__file__).parents[1]
    code = ["git", "status", "--porcelain", "--", "tools", "tests", ".ci/lock"]
    if not is_quick and subprocess.run(code, cwd=root, capture_output=True, check=True).stdout:
        pytest.fail("tools/ or tests/ differ from the commit: commit first, or take --quick")
    return is_quick
