"""The process that ranks are forked from imports what the kernels' tests need, too."""

import pytest

from tests.shardlab import pool


def pytest_runtest_setup(item: pytest.Item) -> None:
    pool.preload()
