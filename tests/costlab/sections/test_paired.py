"""Differences are taken between measurements of one round, and compared with the sweep."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from costlab.judge.claims_file import load as claims_of
from costlab.judge.judge import examine
from costlab.publish import results_page
from costlab.publish.claims_page import text as claims_text
from costlab.publish.figures import draw_tensor_parallel
from costlab.publish.figures.figures import translator
from costlab.publish.figures.plotting import LIGHT, figure
from costlab.record.result import Metric, load
from costlab.record.words import say
from costlab.sections import sweep_check
from costlab.sections.fully_sharded import fully_sharded
from costlab.sections.tp_metrics import PARTS, metrics
from tests.costlab.tiny_run import LAB

# A machine that is three times as slow in some rounds, and not in the same for all percentiles.
SPEEDS = [1, 3, 1, 3, 3, 1, 3, 3, 1, 3, 1]
USUAL = 3  # the median of them
STEP, SILENT = 0.200, 0.180


def slow_down(seconds: float) -> list[float]:
    return [seconds * speed for speed in SPEEDS]


def index_by_id(metrics: Iterable[Metric]) -> dict[str, Metric]:
    return {metric.id: metric for metric in metrics}


def test_a_difference_of_rounds_is_free_of_a_machine_that_drifts() -> None:
    """The step's slowest rounds fall beside the silent step's slowest, whatever they are.

    So no table shows a step that is slower without communication than with it, beside 13 %.
    """
    times = {
        "shardlab.gloo": slow_down(STEP),
        "silent": slow_down(SILENT),
        "communication": slow_down(0.1),
    }
    metrics = index_by_id(fully_sharded.shares_of(256, times, 2, "gloo"))
    cost = metrics["fsdp.h256.communication-cost.shardlab.gloo"]
    assert [cost.low, cost.value, cost.high] == pytest.approx([0.1] * 3)
    assert cost.samples == len(SPEEDS)
    silent = metrics["fsdp.h256.silent.shardlab"]
    assert silent.value == pytest.approx(USUAL * SILENT)
    assert silent.detail["step"] == pytest.approx(USUAL * STEP)
    assert set(metrics) == {
        "fsdp.h256.silent.shardlab", "fsdp.h256.communication.shardlab.gloo",
        "fsdp.h256.communication-cost.shardlab.gloo",
    }  # fmt: skip


def test_a_cost_lost_in_noise_has_an_interval_that_holds_nothing_at_all() -> None:
    noisy = [STEP * (1 + 0.2 * (-1) ** place) for place in range(12)]
    times = {"shardlab.gloo": noisy, "silent": [STEP] * 12, "communication": [0.1] * 12}
    cost = index_by_id(fully_sharded.shares_of(8, times, 2, "gloo"))[
        "fsdp.h8.communication-cost.shardlab.gloo"
    ]
    assert cost.low is not None and cost.high is not None
    assert cost.low < 0 < cost.high


def make_parts() -> dict[str, Metric]:
    times = {
        "one": slow_down(1.0), "gloo": slow_down(1.0), "matmul": slow_down(0.4),
        "matmul-whole": slow_down(0.6), "latency": slow_down(0.1), "communication": slow_down(0.25),
        "launch": slow_down(0.05),
    }  # fmt: skip
    calls = {"all_reduce.262144": 18, "all_gather.12288": 1}
    return index_by_id(metrics(128, times, 2, calls=calls))


def test_every_part_is_its_share_of_the_same_rounds_step() -> None:
    metrics = make_parts()
    shares = {part: metrics[f"tp.h128.share.{part}.shardlab.gloo"] for part in PARTS}
    assert {part: metric.value for part, metric in shares.items()} == pytest.approx(
        {"matmul": 0.4, "latency": 0.1, "volume": 0.15, "launch": 0.05, "other": 0.3}
    )
    for metric in shares.values():  # the drift is in both, so nothing is left of it
        assert [metric.low, metric.high] == pytest.approx([metric.value] * 2)
    remainder = metrics["tp.h128.part.other.shardlab.gloo"]
    assert (
        remainder.how == "derived"
        and remainder.low is not None
        and remainder.samples == len(SPEEDS)
    )


def make_sweep(seconds: float = 4e-4) -> dict[str, Metric]:
    """Return a sweep whose calls take `seconds` plus 1 ns a byte."""
    return index_by_id(
        Metric(
            id=f"collective.gloo.{op}.n2.{1 << power}.blocking", value=1.0, unit="s",
            device="cpu", detail={"median": seconds + (1 << power) * 1e-9},
        )
        for op in ("all_reduce", "all_gather")
        for power in range(10, 21)
    )  # fmt: skip


def test_the_sweep_says_what_a_steps_collectives_would_take() -> None:
    metrics = make_parts()
    more = index_by_id(sweep_check.derive({**metrics, **make_sweep()}, "tp"))
    whole, latency, volume = (
        more[f"tp.h128.sweep.{what}.shardlab.gloo"].value
        for what in ("communication", "latency", "volume")
    )
    assert whole == pytest.approx(19 * 4e-4 + (18 * 262144 + 12288) * 1e-9)
    assert latency == pytest.approx(19 * (4e-4 + 1024e-9))  # by the least that the sweep knows
    assert volume == pytest.approx(whole - latency)
    assert {metric.how for metric in more.values()} == {"derived"}


def test_what_the_sweep_has_not_reached_it_does_not_say() -> None:
    metrics = make_parts()
    short = {name: metric for name, metric in make_sweep().items() if ".262144." not in name}
    short = {name: metric for name, metric in short.items() if int(name.split(".")[4]) < 262144}
    assert not list(sweep_check.derive({**metrics, **short}, "tp"))
    assert not list(sweep_check.derive(metrics, "tp"))


@pytest.mark.parametrize("language", ["en", "es"])
def test_the_page_says_where_sweep_and_step_disagree_and_where_they_agree(language: str) -> None:
    measured = make_parts()
    disagreeing = {**measured, **make_sweep()}
    disagreeing |= index_by_id(sweep_check.derive(disagreeing, "tp"))
    text = sweep_check.describe(disagreeing, "tp", language)
    ratio = USUAL * 0.25 / (19 * 4e-4 + (18 * 262144 + 12288) * 1e-9)
    assert " 128" in text and f" {ratio:.2f} " in text
    assert "bench." in text  # where the reason stands
    alike = {**measured, **make_sweep((USUAL * 0.25 - (18 * 262144 + 12288) * 1e-9) / 19)}
    alike |= index_by_id(sweep_check.derive(alike, "tp"))
    agreed = sweep_check.describe(alike, "tp", language)
    assert agreed == say("sweep.agree", language) != ""
    assert sweep_check.describe(measured, "tp", language) == ""


def test_one_process_on_as_many_threads_is_drawn_beside_two_ranks() -> None:
    metrics = load(LAB / results_page.REFERENCE).metrics()
    assert list(draw_tensor_parallel.lines(metrics)) == ["gloo", "shared-memory", "threads"]
    with figure(LIGHT, width=7.2, height=4.6) as (_, axes):
        draw_tensor_parallel.draw_speedup(axes, LIGHT, metrics, translator("en"))
        names = [text.get_text() for text in axes.get_legend().get_texts()]
        assert "one process, as many threads" in names and len(names) == 3
        assert axes.get_ylabel() == "speed-up over one process, one thread, on a CPU"


def test_claim_7_is_tested_against_one_process_on_as_many_threads_too() -> None:
    result = load(LAB / results_page.REFERENCE)
    claims = claims_of(LAB / "claims.toml")
    (seven,) = [claim for claim in claims if claim.number == 7]
    judged = examine(seven, result.metrics())
    threads = [outcome for outcome in judged if "over-threads" in outcome.outcomes[0].test.metric]
    assert len(threads) == 10 and not all(outcome.passed for outcome in threads)
    for language, words in (("en", "threads as there are ranks"), ("es", "hilos como ranks hay")):
        rows = claims_text(claims, result, LAB, language).splitlines()
        (row,) = [row for row in rows if 'id="claim-7"' in row]
        assert re.search(rf"✗ [^:]*{words}: ", row)
