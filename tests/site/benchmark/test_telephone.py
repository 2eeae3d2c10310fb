"""Measures each theory page's first load on a slow telephone: its weight, and when it is usable.

`make benchmark` runs it and rewrites the table between the marks `loaded` of docs/reference/site.md
(and .es.md). A page is usable after its last task of more than 50 ms, once 2 s without such a task
follow; what the page does later, the reader asked for.
"""

from __future__ import annotations

import statistics
from datetime import UTC, datetime
from typing import Any

import pytest

from costlab.record.options import Settings
from costlab.record.provenance import provenance
from tests.site.benchmark.test_weight import REPOSITORY, fill_table, weigh_first_load
from tests.site.places import Place, list_places

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

GOAL = 2.5  # seconds
LOADS = 5
SLOWED = 4  # times, the processor
QUIET = 2000  # milliseconds
TELEPHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
WATCH = """window.tasks = []; new PerformanceObserver(list => tasks.push(...list.getEntries().map(
    task => [task.startTime, task.duration]))).observe({type: "longtask", buffered: true})"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
WORDS = {
    "": {
        "head": "| first load of theory page | compressed | usable after |",
        "about": "390 px, the processor slowed {slowed} times; medians of {loads} loads, single "
        "loads {least:.2f}–{most:.2f} s; {date}; {processor}, {cores} cores, load {load-before} "
        "before.",
    },
    ".es": {
        "head": "| primera carga de la página de teoría | comprimida | utilizable tras |",
        "about": "390 px, el procesador {slowed} veces más lento; medianas de {loads} cargas, cada "
        "una {least:.2f}–{most:.2f} s; {date}; {processor}, {cores} núcleos, carga {load-before} "
        "antes.",
    },
}


def measure_load(browser: Any, address: str) -> float:
    """Return the seconds after which a page is usable that a telephone opens for the first time."""
    context = browser.new_context(**TELEPHONE)
    page = context.new_page()
    page.add_init_script(WATCH)
    session = context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWED})
    page.goto(address, wait_until="load")
    page.wait_for_timeout(QUIET + 1500)
    end = page.evaluate(PAINT)
    for start, duration in sorted(page.evaluate("tasks")):
        if start - end > QUIET:
            break
        end = max(end, start + duration)
    context.close()
    return float(end) / 1000


def list_theory() -> list[Place]:
    return [place for place in list_places() if place.address.startswith("theory/")]


def test_a_theory_page_is_usable_soon(browser: Any, searched: str) -> None:
    seconds, rows = {}, []
    for number, place in enumerate(list_theory(), 1):
        loads = [measure_load(browser, searched + place.address) for _ in range(LOADS)]
        seconds[number] = loads
        _, _, compressed = weigh_first_load(browser, searched, place)
        rows.append(f"| {number} | {compressed / 1000:.0f} KB | {statistics.median(loads):.2f} s |")
    every = [load for loads in seconds.values() for load in loads]
    facts = provenance(Settings(), [], ranks=None) | {
        "loads": LOADS, "slowed": SLOWED, "least": min(every), "most": max(every),
        "date": datetime.now(UTC).date().isoformat(),
    }  # fmt: skip
    for suffix, words in WORDS.items():
        table = "\n".join(
            [words["head"], "|--:|--:|--:|", *rows, "", words["about"].format(**facts)]
        )
        fill_table(REPOSITORY / f"docs/reference/site{suffix}.md", table, "loaded")
        print(table)
    assert statistics.median(every) < GOAL
