"""What every test shares: a skip that nobody expects fails where CI asks for it; worker pools."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.shardlab.pool import Pool


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", default="cpu", choices=("cpu", "cuda"), help="where shardlab's tests run"
    )
    parser.addoption(
        "--quick", action="store_true", help="of a benchmark, a small part, once, unjudged"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under `pytest -n 2 --dist loadgroup`, keep together what shares slow things, else by file.

    shardlab's tests share their pools of workers, the site's its build and the browser.
    """
    if config.pluginmanager.hasplugin("dsession") or hasattr(config, "workerinput"):
        for item in items:
            folder = item.path.relative_to(config.rootpath / "tests").parts[0]
            group = folder if folder in ("shardlab", "site") else item.path.name
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    expected = item.get_closest_marker("may_skip")
    if report.skipped and os.environ.get("SHARDBOOK_EXPECT_NO_SKIPS") and not expected:
        report.outcome = "failed"
        report.longrepr = f"skipped where no skip is expected: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def pool(device: str) -> Iterator[Callable[[int], Pool]]:
    """Workers by world size, shared by every test of the session."""
    pools: dict[int, Pool] = {}

    def of(size: int) -> Pool:
        return pools.setdefault(size, Pool(size, device))

    yield of
    for each in pools.values():
        each.stop()
