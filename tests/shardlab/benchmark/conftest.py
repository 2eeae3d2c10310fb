"""What the benchmarks share."""

import pytest


@pytest.fixture
def quick(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--quick"))
