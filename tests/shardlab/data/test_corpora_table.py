"""The corpora's table on its page is what was measured."""

from __future__ import annotations

import json

import pytest

from costlab.publish.kernels_page import MEASURED
from tests.shardlab.data import test_benchmark_data as benchmark


@pytest.mark.parametrize("language", benchmark.PAGES)
def test_the_corpora_table_is_what_was_measured(language: str) -> None:
    page = benchmark.PAGES[language].read_text("utf-8")
    result = json.loads((MEASURED / "corpora.json").read_text("utf-8"))
    assert f"\n{benchmark.render(result, language)}\n" in page
