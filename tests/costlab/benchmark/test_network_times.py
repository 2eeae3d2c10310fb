"""Compares the bench with a known truth: a link's bandwidth and a wire's delay.

Ranks sit in network namespaces, joined by a switch whose links are given a bandwidth, or by a wire
that is given a delay (see ../network). `make benchmark` runs it and rewrites the measured table of
docs/reference/bench.md (and .es.md).
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from costlab.record.options import Settings
from costlab.record.provenance import provenance
from pages.blocks import ROOT, fill_blocks
from tests.costlab.network import lab
from tests.costlab.network.namespaces import explain_lack

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(2 * lab.PATIENCE)]
LIMIT = 0.05
WORDS = {
    "": ("set on the link", "measured by the bench", "{rate:.0f} Mbit/s, {ranks} nodes",
         "a delay {step:.0f} ms longer, {ranks} nodes",
         "{date}; {processor}, {cores} cores, load {load-before} before; gloo, torch {torch}."),
    ".es": (
        "fijado en el enlace",
        "medido por el banco",
        "{rate:.0f} Mbit/s, {ranks} nodos",
        "un retardo {step:.0f} ms mayor, {ranks} nodos",
        "{date}; {processor}, {cores} núcleos, carga previa {load-before}; gloo, torch {torch}.",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return provenance(Settings(), [], ranks=None) | {"date": datetime.now(UTC).date().isoformat()}


@pytest.fixture(scope="module")
def times(facts: dict[str, Any]) -> dict[str, Any]:
    if why := explain_lack():
        pytest.skip(why)
    return lab.run_experiment("timed")


def list_bandwidths(times: dict[str, Any], ranks: int) -> dict[float, float]:
    """Return the measured bits per second, by the bandwidth that was set."""
    shaped = times["shaped"]
    return {rate: lab.fit_bandwidth(shaped[f"n{ranks}.{rate:.0f}"], ranks) for rate in lab.RATES}


def list_delays(times: dict[str, Any], ranks: int) -> dict[str, float]:
    """Return the measured increase of the delay in seconds, by operation."""
    delayed = times["delayed"][f"n{ranks}"]
    return {
        operation: lab.fit_one_way_delay(delayed, operation, ranks) for operation in lab.OPERATIONS
    }


def test_what_the_wire_was_given_comes_back(times: dict[str, Any], facts: dict[str, Any]) -> None:
    for suffix, (setting_title, result_title, rated, delayed, about) in WORDS.items():
        rows = [f"| {setting_title} | {result_title} |", "|---|--:|"]
        for ranks in lab.WORLDS:
            for rate, measured in list_bandwidths(times, ranks).items():
                what = rated.format(rate=rate / 1e6, ranks=ranks)
                rows.append(f"| {what} | {measured / 1e6:.1f} Mbit/s |")
        for ranks in lab.WORLDS:
            milliseconds = [1e3 * seconds for seconds in list_delays(times, ranks).values()]
            what = delayed.format(step=1e3 * lab.STEP, ranks=ranks)
            rows.append(f"| {what} | {min(milliseconds):.2f}–{max(milliseconds):.2f} ms |")
        table = "\n".join([*rows, "", about.format(**facts)])
        page = ROOT / f"docs/reference/bench{suffix}.md"
        page.write_text(fill_blocks(page, {"network": table}), "utf-8")
        print(table)
    for ranks in lab.WORLDS:
        for rate, bandwidth in list_bandwidths(times, ranks).items():
            assert bandwidth == pytest.approx(rate, rel=LIMIT), (ranks, rate)
        for operation, delay in list_delays(times, ranks).items():
            assert delay == pytest.approx(lab.STEP, rel=LIMIT), (ranks, operation)


def test_the_relay_keeps_its_own_time(times: dict[str, Any]) -> None:
    assert times["late"] < LIMIT * lab.STEP  # on a busy machine it is late, and proves nothing
