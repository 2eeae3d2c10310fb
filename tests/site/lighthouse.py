"""Measures first loads of pages with Lighthouse: `python -m tests.site.lighthouse`.

Builds the site, has Lighthouse open each page below LOADS times, each in a fresh profile of
chromium, and writes medians into docs/reference/site.md (and .es.md). npx fetches Lighthouse; the
repository doesn't depend on it. Neither network nor processor is slowed down.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from costlab.record.provenance import provenance
from costlab.record.settings import Settings
from tests.site.benchmark.test_weight import REPOSITORY, build_site
from tests.site.chromium import QUIET, find_browser
from tests.site.serving import serving

TOOL = "lighthouse@12.8.2"
LOADS = 5
PAGES = {
    "front": "",
    "theory": "theory/03-sharded-data-parallelism/",
    "note": "experiments/35-reading-notes/megatron-tp-layers/",
    "results": "experiments/35-allreduce-costs/RESULTS/",
}
AUDITS = {
    "elements": "dom-size",
    "first": "first-contentful-paint",
    "largest": "largest-contentful-paint",
    "blocked": "total-blocking-time",
    "shift": "cumulative-layout-shift",
}
WORDS = {
    "": {
        "thousands": ",",
        "head": "| first load of | requests | compressed | elements | first paint | largest paint "
        "| blocked | layout shift | score |",
        "front": "the front page",
        "theory": "theory page 3",
        "note": "a note",
        "results": "RESULTS",
        "about": "Median of {loads} first loads each, {tool} as on a desktop, {date}; {processor}, "
        "{cores} cores, load {load-before} before.",
    },
    ".es": {
        "thousands": " ",
        "head": "| primera carga de | peticiones | comprimido | elementos | primer pintado | "
        "pintado mayor | bloqueo | desplazamiento | nota |",
        "front": "la portada",
        "theory": "la página 3 de teoría",
        "note": "una nota",
        "results": "RESULTS",
        "about": "Mediana de {loads} primeras cargas de cada una, {tool} como en un ordenador de "
        "mesa, {date}; {processor}, {cores} núcleos, carga {load-before} antes.",
    },
}


def measure_load(address: str) -> dict[str, float]:
    """Return the metrics of one first load of a page."""
    finished = subprocess.run(
        [
            "npx", "--yes", TOOL, address, "--quiet", "--output=json", "--preset=desktop",
            "--only-categories=performance", "--throttling-method=provided",
            f"--chrome-flags={' '.join(['--headless=new', *QUIET])}",
        ],
        env=os.environ | {"CHROME_PATH": find_browser() or ""}, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    report: dict[str, Any] = json.loads(finished.stdout)
    audits = report["audits"]
    metrics = {key: float(audits[audit]["numericValue"]) for key, audit in AUDITS.items()}
    addresses = [request["url"] for request in audits["network-requests"]["details"]["items"]]
    return metrics | {
        "score": 100 * report["categories"]["performance"]["score"],
        "requests": len(addresses),
        "compressed": sum(map(count_compressed_bytes, addresses)),
    }


def count_compressed_bytes(address: str) -> int:
    """Return the size of the file at an address, compressed as most hosts send it."""
    if not address.startswith("http"):
        return 0  # data: came with the page
    with urlopen(address) as answer:
        return len(gzip.compress(answer.read()))


def measure_medians(served: str) -> dict[str, dict[str, float]]:
    """Return the medians by page and metric; the pages are loaded in turn."""
    rounds = [
        {name: measure_load(served + place) for name, place in PAGES.items()} for _ in range(LOADS)
    ]
    return {
        name: {
            key: statistics.median(metrics[name][key] for metrics in rounds)
            for key in rounds[0][name]
        }
        for name in PAGES
    }


def format_table(
    metrics_by_page: dict[str, dict[str, float]], words: dict[str, str], facts: dict[str, Any]
) -> str:
    """Return the table for a page, and the line below it that names the machine."""
    lines = [words["head"], "|---|" + "--:|" * 8]
    for name, metrics in metrics_by_page.items():
        cells = [
            f"{metrics['requests']:.0f}", f"{metrics['compressed'] / 1e6:.2f} MB",
            f"{metrics['elements']:,.0f}", f"{metrics['first']:,.0f} ms",
            f"{metrics['largest']:,.0f} ms",
            f"{metrics['blocked']:,.0f} ms", f"{metrics['shift']:.3f}", f"{metrics['score']:.0f}",
        ]  # fmt: skip
        numbers = " | ".join(cells).replace(",", words["thousands"])
        lines.append(f"| {words[name]} | {numbers} |")
    return "\n".join([*lines, "", words["about"].format(**facts)])


def fill_table(page: str, table: str) -> str:
    """Return a page's text with `table` between its marks; the rest is not changed."""
    opening, closing = "<!-- loaded -->\n", "\n<!-- /loaded -->"
    before, rest = page.split(opening)
    return before + opening + table + closing + rest.split(closing)[1]


def main() -> None:
    """Measure, and write the table into both pages."""
    facts = provenance(Settings(), [], ranks=None)
    facts |= {"loads": LOADS, "tool": TOOL, "date": datetime.now(UTC).date().isoformat()}
    with tempfile.TemporaryDirectory() as folder:
        build_site(Path(folder))
        with serving(Path(folder)) as served:
            metrics_by_page = measure_medians(served)
    for suffix, words in WORDS.items():
        page = REPOSITORY / f"docs/reference/site{suffix}.md"
        page.write_text(
            fill_table(page.read_text("utf-8"), format_table(metrics_by_page, words, facts)),
            "utf-8",
        )
        print(format_table(metrics_by_page, words, facts))


if __name__ == "__main__":
    main()
