"""Values are formatted with a few digits and a unit, the same in every language."""

from __future__ import annotations

import pytest

from costlab.record.quantity import count, format_metric, spread
from costlab.record.result import How, Metric


@pytest.mark.parametrize(
    ("name", "value", "unit", "text"),
    [
        ("a", 0.00123456, "s", "1.23 ms"),
        ("a", 0.0000123456, "s", "12.3 µs"),
        ("a", 0.99996, "s", "1.00 s"),
        ("a", 0.0999996, "s", "100 ms"),
        ("a", 3.2e-9, "s", "3.20 ns"),
        ("a", 0, "s", "0 ns"),
        ("a", 1e-5, "s", "10 µs"),
        ("a", 9.999999999999999e-06, "s", "10 µs"),
        ("a", 1536, "B", "1.50 KiB"),
        ("a", 1 << 20, "B", "1 MiB"),
        ("a", 12_340_000_000, "B/s", "12.3 GB/s"),
        ("a", 1_500_000_000, "parameters", "1.50 G"),
        ("a", 180.4, "hidden", "180"),
        ("a", 1024, "hidden", "1,024"),
        ("a", 2, "count", "2"),
        ("tp.h128.slowdown.shardlab.gloo", 1.19048, "ratio", "1.19×"),
        ("tp.h128.share.latency.shardlab.gloo", 0.425, "share", "42 %"),
        ("fsdp.h128.hidden-share.shardlab.gloo", 0.0, "share", "0 %"),
        ("fsdp.h128.communication-cost.shardlab.gloo", 0.1512, "share", "15 %"),
        ("pipeline.gpipe.p4.m8.bubble.shardlab.gloo", 0.2727, "share", "27 %"),
        ("fit.gloo.all_reduce.n2.plain-residual", 0.0312, "share", "3.1 %"),
        ("a", 0.005208, "B/FLOP", "0.0052 B/FLOP"),
    ],
)
def test_a_value_is_written_so(name: str, value: float, unit: str, text: str) -> None:
    assert format_metric(Metric(id=name, value=value, unit=unit)) == text


def test_a_spread_is_written_as_its_value_is_and_only_where_there_is_one() -> None:
    assert spread(Metric(id="a", value=2e-3, unit="s", low=1e-3, high=2.5e-3)) == "1 ms – 2.50 ms"
    assert spread(Metric(id="a", value=2, unit="count")) == ""


@pytest.mark.parametrize(
    ("how", "samples", "launches", "text"),
    [
        ("measured", 12, None, "12"),
        ("measured", 1660, 5, "1,660 / 5"),
        ("measured", 1, None, "1"),
        ("counted", 1, None, "–"),
        ("modelled", 1, None, "–"),
    ],
)
def test_a_row_says_on_how_many_observations_it_stands(
    how: How, samples: int, launches: int | None, text: str
) -> None:
    detail: dict[str, str | float | int | bool] = {"launches": launches} if launches else {}
    metric = Metric(id="a", value=1, unit="s", how=how, samples=samples, detail=detail)
    assert count(metric) == text


def test_what_is_derived_says_it_where_it_has_a_spread_and_a_dash_where_not() -> None:
    plain = Metric(id="a", value=1, unit="s", how="derived")
    assert count(plain) == "–"
    assert count(Metric(id="a", value=1, unit="s", how="derived", low=1, high=2, samples=7)) == "7"
