"""What `--quick` decides, and that a published number has a commit."""

import subprocess

import pytest

from tests.shardlab.benchmark.table import ROOT


@pytest.fixture
def quick(request: pytest.FixtureRequest) -> bool:
    """Whether to take a glance, which publishes nothing.

    What is published names a commit: with another code than that, nothing is measured.
    """
    is_quick = bool(request.config.getoption("--quick"))
    code = ["git", "status", "--porcelain", "--", "tools", "tests", ".ci/lock"]
    if not is_quick and subprocess.run(code, cwd=ROOT, capture_output=True, check=True).stdout:
        pytest.fail("tools/ or tests/ differ from the commit: commit first, or take --quick")
    return is_quick
