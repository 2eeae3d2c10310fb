"""What `--quick` decides, and that a published number has a commit."""

import pytest

from tests.shardlab.benchmark.provenance import provenance


@pytest.fixture
def quick(request: pytest.FixtureRequest) -> bool:
    """Whether to take a glance, which publishes nothing.

    What is published names a commit: with another code than that, nothing is measured.
    """
    asked = bool(request.config.getoption("--quick"))
    if not asked and not provenance()["clean"]:
        pytest.fail("tools/ or tests/ differ from the commit: commit first, or take --quick")
    return asked
