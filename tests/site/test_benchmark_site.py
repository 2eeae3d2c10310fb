"""Measures the build, the reload of a saved note, and pages' first loads: weight, and when usable.

`make benchmark` runs it and rewrites the tables between the marks `measured` and `loaded` of
docs/reference/site.md (and .es.md). A page is usable after its last task of more than 50 ms, once
2 s without such a task follow; what the page does later, the reader asked for.
"""

from __future__ import annotations

import gzip
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from costlab.record.options import Settings
from costlab.record.provenance import provenance
from pages.blocks import LANGUAGES, ROOT, fill_blocks, in_language, read_words, table
from tests.site.places import Place, list_places
from tests.site.reader import Reader
from tests.site.serving import copy_workbook, seconds_to_page, serve_live

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

RELOAD_GOAL, ROUNDS = 3, 3  # seconds until a saved note is on its page
USABLE_GOAL, LOADS = 2.5, 5  # seconds until a theory page is usable
SLOWED = 4  # times, the processor of the telephone
QUIET = 2000  # milliseconds
TELEPHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
WATCH = """window.tasks = []; new PerformanceObserver(list => tasks.push(...list.getEntries().map(
    task => [task.startTime, task.duration]))).observe({type: "longtask", buffered: true})"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
KINDS = ("plain", "formulas", "diagrams", "both")


def publish(mark: str, make_tables: Any, **facts: Any) -> None:
    """Write a block of the page in each language: its tables, and what they were measured on."""
    facts |= provenance(Settings(), [], ranks=None) | {"date": datetime.now(UTC).date().isoformat()}
    for language in LANGUAGES:
        words = read_words("site")[language]
        path = in_language("docs/reference/site", language)
        text = "\n\n".join([*make_tables(words), words[f"about {mark}"].format(**facts)])
        path.write_text(fill_blocks(path, {mark: text}), "utf-8")
        print(text)


def weigh_first_load(browser: Any, served: str, place: Place) -> tuple[int, int, int]:
    """Return the requests, bytes and compressed bytes of a page's first load."""
    reader = Reader(browser, served, first_visit=True)
    answers: list[Any] = []
    # Playwright wants a function that it can mark, which a built-in method is not.
    reader.page.on("response", lambda response: answers.append(response))  # noqa: PLW0108
    reader.read(place.address)
    if place.diagrams:
        reader.wait_for_diagrams()
    reader.page.wait_for_load_state("networkidle")
    bodies = [answer.body() for answer in answers if answer.url.startswith(served)]
    reader.close()
    return len(bodies), sum(map(len, bodies)), sum(len(gzip.compress(body)) for body in bodies)


def build_site(folder: Path) -> float:
    start = time.monotonic()
    command = ["mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True)
    return time.monotonic() - start


def format_spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.1f} s ({min(seconds):.1f}–{max(seconds):.1f})"


def test_build_reload_and_weight(browser: Any, searched: str, tmp_path: Path) -> None:
    builds = [build_site(tmp_path / str(number)) for number in range(ROUNDS)]
    book = copy_workbook(tmp_path / "book")
    with serve_live(book) as address:
        saves = [seconds_to_page(book, address, f"Saved {number}.") for number in range(ROUNDS)]
    heaviest: dict[str, Place] = {}  # of each kind, by its diagrams and formulas
    for place in sorted(list_places(), key=lambda place: (len(place.diagrams), place.formulas)):
        if not place.address.startswith("es/"):
            kind = KINDS[2 * bool(place.diagrams) + bool(place.formulas)]
            heaviest[kind] = place
    weights = {kind: weigh_first_load(browser, searched, p) for kind, p in heaviest.items()}

    def make_tables(words: dict[str, Any]) -> list[str]:
        title = words["build"].format(pages=len(list_places()))
        times = [[title, format_spread(builds)], [words["save"], format_spread(saves)]]
        rows = [
            [
                words[kind].format(diagrams=len(place.diagrams), formulas=place.formulas),
                str(weights[kind][0]),
                *(f"{size / 1e6:.2f} MB" for size in weights[kind][1:]),
            ]
            for kind, place in heaviest.items()
        ]
        return [table(["", ""], "<>", times), table(words["weighed"], "<>>>", rows)]

    publish("measured", make_tables, rounds=ROUNDS)
    assert max(saves) < RELOAD_GOAL * 4  # processors differ by two and more


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


def test_a_theory_page_is_usable_soon(browser: Any, searched: str) -> None:
    every, rows = [], []
    theory = [place for place in list_places() if place.address.startswith("theory/")]
    for number, place in enumerate(theory, 1):
        loads = [measure_load(browser, searched + place.address) for _ in range(LOADS)]
        every += loads
        _, _, compressed = weigh_first_load(browser, searched, place)
        median = statistics.median(loads)
        rows.append([str(number), f"{compressed / 1000:.0f} KB", f"{median:.2f} s"])
    facts = {"loads": LOADS, "slowed": SLOWED, "least": min(every), "most": max(every)}
    publish("loaded", lambda words: [table(words["loaded"], ">>>", rows)], **facts)
    assert statistics.median(every) < USABLE_GOAL
