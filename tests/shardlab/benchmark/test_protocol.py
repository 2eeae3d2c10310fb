"""The benchmark's arithmetic and its tables; nothing is measured here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from costlab.implementations import rounds
from costlab.record.result import Load
from shardlab.comm import World
from tests.shardlab.benchmark import (
    protocol,
    table,
    test_benchmark_collectives,
    test_benchmark_context,
    test_benchmark_ddp,
    test_benchmark_experts,
    test_benchmark_fsdp,
    test_benchmark_pipeline,
    test_benchmark_tp,
)
from tests.shardlab.data import test_benchmark_data

LAYOUT = table.Layout(
    "step", "hidden", {"en": "hidden", "es": "oculta"},
    {"a": {"en": "a", "es": "a"}, "b": {"en": "b", "es": "b"}},
)  # fmt: skip
PAGE = "before\n<!-- measured: step -->\nold\n<!-- /measured: step -->\nafter\n"


def case() -> protocol.Case:
    return protocol.Case(
        {"hidden": 1024},
        [{"a": [0.2, 0.1, 9.0], "b": [0.1, 0.2, 0.3]}, {"a": [0.4] * 3, "b": [0.1] * 3}],
    )


def test_a_ratio_is_taken_round_by_round_and_launch_by_launch() -> None:
    assert case().ratios("a", "b") == pytest.approx([2.0, 4.0])
    assert case().ratio("a", "b") == pytest.approx(3)


def test_contestants_whose_losses_differ_are_not_compared() -> None:
    with pytest.raises(
        RuntimeError, match=r"b computes something else than a: loss 1\.1, not 1\.0"
    ):
        rounds.agree({"a": 1.0, "c": None, "b": 1.1}, 1e-4)


def test_the_table_names_the_base_once_and_the_spread_of_the_others() -> None:
    result: dict[str, Any] = protocol.record("step", "b", [case()], protocol.Plan())
    english, spanish = (table.render(result, LAYOUT, language) for language in ("en", "es"))
    assert "| 1,024 | 300 (**3.00**, 2.00–4.00) | 150 |" in english
    assert "| 1024 |" in spanish


def test_under_the_table_stands_what_else_ran() -> None:
    busy = case()
    busy.load = Load(rounds=9, spoiled=7, core_seconds=18, foreign=9, worst_share=0.8)
    result = protocol.record("step", "b", [case(), busy], protocol.Plan())
    english, spanish = (table.render(result, LAYOUT, language) for language in ("en", "es"))
    assert "don't quote this. In 7 of 9 rounds something else used the cores" in english
    assert "no cites esto" in spanish
    del result["cases"][1]["load"]  # as in tables of before
    assert table.UNWATCHED["en"] in table.render(result, LAYOUT, "en")


def test_a_disturbed_case_is_not_published() -> None:
    calm = protocol.Case({"hidden": 1}, [{"a": [1.0] * 8 + [2.9] * 2}] * 2)
    disturbed = protocol.Case({"hidden": 2}, [{"a": [1.0] * 10}, {"a": [1.0] * 8 + [9.0] * 2}])
    result = protocol.record("step", "a", [calm], protocol.Plan())
    table.refuse_disturbed(result)
    result = protocol.record("step", "a", [calm, disturbed], protocol.Plan())
    with pytest.raises(ValueError, match=r"\{'hidden': 2\}, a: 9\.0"):
        table.publish(result, LAYOUT)


@contextmanager
def idle(world: World, *, hidden: int) -> Iterator[dict[str, rounds.Step]]:
    yield {"a": lambda: None, "b": lambda: None}


@pytest.mark.ci
def test_what_is_measured_comes_with_what_else_ran() -> None:
    plan = protocol.Plan(launches=2, seconds=0, least=2, most=2, warmup=0)
    cases = protocol.compare(idle, [{"hidden": 1}, {"hidden": 2}], ranks=2, plan=plan)
    for case_result in cases:
        assert [sorted(launch) for launch in case_result.launches] == [["a", "b"]] * 2
        rounds_kept = sum(len(launch["a"]) for launch in case_result.launches)
        assert case_result.load.rounds - case_result.load.dropped == rounds_kept >= 4


def test_a_table_goes_between_its_markers_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    table.fill(page, LAYOUT.marker, "new")
    assert page.read_text().split() == PAGE.replace("old", "new").split()
    page.write_text("no block")
    with pytest.raises(ValueError, match="add it where the table goes"):
        table.fill(page, LAYOUT.marker, "new")


LAYOUTS = [
    layout
    for module in (
        test_benchmark_collectives, test_benchmark_context, test_benchmark_ddp,
        test_benchmark_experts, test_benchmark_fsdp, test_benchmark_pipeline,
        test_benchmark_tp,
    )
    for layout in vars(module).values()
    if isinstance(layout, table.Layout)
]  # fmt: skip


@pytest.mark.parametrize("language", table.PAGES)
def test_each_table_of_the_page_is_what_was_measured(language: str) -> None:
    page = table.PAGES[language].read_text("utf-8")
    markers = re.findall(r"<!-- measured: (\S+) -->", page)
    assert sorted(markers) == sorted(layout.marker for layout in LAYOUTS)
    for layout in LAYOUTS:
        result = json.loads((table.MEASURED / f"{layout.marker}.json").read_text("utf-8"))
        table.refuse_disturbed(result)
        assert f"\n{table.render(result, layout, language)}\n" in page, layout.marker


@pytest.mark.parametrize("language", test_benchmark_data.PAGES)
def test_the_corpora_table_is_what_was_measured(language: str) -> None:
    page = test_benchmark_data.PAGES[language].read_text("utf-8")
    result = json.loads((table.MEASURED / "corpora.json").read_text("utf-8"))
    assert f"\n{test_benchmark_data.render(result, language)}\n" in page
