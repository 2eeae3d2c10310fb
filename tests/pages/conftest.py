"""The process that ranks are forked from imports what the kernels' tests need, too."""

import pytest

from tests.shardlab import pool

NEED_RANKS = ("test_pages.py", "test_ranks.py")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.path.name in NEED_RANKS:
        pool.preload()
