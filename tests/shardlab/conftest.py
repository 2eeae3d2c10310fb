"""The worker pools, one per world size, shared by every test of the session."""

from collections.abc import Callable, Iterator

import pytest

from tests.shardlab.pool import Pool


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def pool(device: str) -> Iterator[Callable[[int], Pool]]:
    pools: dict[int, Pool] = {}

    def of(size: int) -> Pool:
        return pools.setdefault(size, Pool(size, device))

    yield of
    for each in pools.values():
        each.stop()
