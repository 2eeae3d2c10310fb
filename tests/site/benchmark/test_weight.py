"""Measures the build, the reload of a saved note, and the weight of a page's first load.

`make benchmark` runs it and rewrites the measured tables of docs/reference/site.md (and .es.md).
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
from tests.site.places import Place, list_places
from tests.site.reader import Reader
from tests.site.serving import copy_workbook, seconds_to_page, serve_live

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[3]
GOAL = 3  # seconds until a saved note is on its page
ROUNDS = 3
WORDS = {
    "": {
        "head": "| | |",
        "build": "full strict build, {pages} pages",
        "save": "from saving a note until its served page is new",
        "weighed": "| first load of | requests | bytes | of those, compressed |",
        "plain": "a page without diagrams or formulas",
        "formulas": "a page with {formulas} formulas",
        "diagrams": "a page with {diagrams} diagrams",
        "both": "a page with {diagrams} diagrams and {formulas} formulas",
        "about": "{rounds} rounds, median (least–most), {date}; {processor}, {cores} cores, "
        "load {load-before} before; Python {python}.",
    },
    ".es": {
        "head": "| | |",
        "build": "generar todo el sitio con `--strict`, {pages} páginas",
        "save": "desde que se guarda una nota hasta que su página servida es nueva",
        "weighed": "| primera carga de | peticiones | bytes | de ellos, comprimidos |",
        "plain": "una página sin diagramas ni fórmulas",
        "formulas": "una página con {formulas} fórmulas",
        "diagrams": "una página con {diagrams} diagramas",
        "both": "una página con {diagrams} diagramas y {formulas} fórmulas",
        "about": "{rounds} rondas, mediana (mínimo–máximo), {date}; {processor}, {cores} núcleos, "
        "carga {load-before} antes; Python {python}.",
    },
}


def build_site(folder: Path) -> float:
    start = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        check=True,
    )
    return time.monotonic() - start


def choose_heaviest_pages() -> dict[str, Place]:
    """Return the heaviest page of each kind, by its diagrams and formulas."""
    kinds: dict[str, Place] = {}
    for place in sorted(list_places(), key=lambda place: (len(place.diagrams), place.formulas)):
        if place.address.startswith("es/"):
            continue
        kind = {
            (False, False): "plain",
            (False, True): "formulas",
            (True, False): "diagrams",
            (True, True): "both",
        }[bool(place.diagrams), bool(place.formulas)]
        kinds[kind] = place
    return kinds


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


def fill_table(page: Path, table: str, mark: str = "measured") -> None:
    """Write `table` between the page's two marks; the rest of the page is not changed."""
    opening, closing = f"<!-- {mark} -->\n", f"\n<!-- /{mark} -->"
    before, rest = page.read_text("utf-8").split(opening)
    page.write_text(before + opening + table + closing + rest.split(closing)[1], "utf-8")


def format_spread(seconds: list[float]) -> str:
    median = statistics.median(seconds)
    return f"{median:.1f} s ({min(seconds):.1f}–{max(seconds):.1f})"


def test_build_reload_and_weight(browser: Any, searched: str, tmp_path: Path) -> None:
    builds = [build_site(tmp_path / str(number)) for number in range(ROUNDS)]
    book = copy_workbook(tmp_path / "book")
    with serve_live(book) as address:
        saves = [seconds_to_page(book, address, f"Saved {number}.") for number in range(ROUNDS)]
    weights = {
        kind: (place, *weigh_first_load(browser, searched, place))
        for kind, place in choose_heaviest_pages().items()
    }
    facts = provenance(Settings(), [], ranks=None) | {
        "rounds": ROUNDS,
        "date": datetime.now(UTC).date().isoformat(),
    }
    for suffix, words in WORDS.items():
        lines = [words["head"], "|---|--:|"]
        title = words["build"].format(pages=len(list_places()))
        lines.append(f"| {title} | {format_spread(builds)} |")
        lines += [
            f"| {words['save']} | {format_spread(saves)} |",
            "",
            words["weighed"],
            "|---|--:|--:|--:|",
        ]
        for kind, (place, requests, size, small) in weights.items():
            what = words[kind].format(diagrams=len(place.diagrams), formulas=place.formulas)
            lines.append(f"| {what} | {requests} | {size / 1e6:.2f} MB | {small / 1e6:.2f} MB |")
        lines += ["", words["about"].format(**facts)]
        fill_table(REPOSITORY / f"docs/reference/site{suffix}.md", "\n".join(lines))
        print("\n".join(lines))
    assert max(saves) < GOAL * 4  # processors differ by two and more
