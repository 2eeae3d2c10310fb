"""The generated pages have each value in its own row, name their inputs, and pass the checker."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from markdown_it import MarkdownIt

from costlab.publish import page, results_page
from costlab.publish.figures import draw_tensor_parallel, figures
from costlab.publish.figures.plotting import Shade
from costlab.publish.generate import candidates, generate
from costlab.publish.results_tables import TABLES
from costlab.record import quantity
from costlab.record.result import Load, Metric, Result, Section, save
from costlab.record.result import load as load_result
from notelab.book.workbook import CheckSession
from notelab.cache import DiskCache
from notelab.page import results_page as rows
from notelab.sources import package
from notelab.sources.library import Library
from notelab.sources.store import Store
from tests.costlab.tiny_run import LAB, ROOT, count_metrics, make_lab, make_step
from tests.notelab.scratch import check_lab

# What these pages can be wrong in; citations are proved where the sources are, by `make check`.
OURS = re.compile(r"N[1345]|N6")


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab in its own repository, with counts, a few points of every section and empty figures.

    A test that changes a file of it puts it back.
    """
    tmp_path = tmp_path_factory.mktemp("book")
    metrics = dict(count_metrics())
    for metric in [*make_step(128, "gloo", 0.8), *make_step(512, "gloo", 1.6), *make_points()]:
        metrics[metric.id] = metric
    folder = make_lab(tmp_path / "experiments" / "35-allreduce-costs", metrics)
    (folder / "lab.toml").write_text(
        '[lab]\ntitle = "x"\nlanguages = ["en", "es"]\npages = ["RESULTS.md", "CLAIMS.md"]\n'
        'sources-from = "../35-reading-notes"\n'
    )
    reading = tmp_path / "experiments" / "35-reading-notes"
    reading.mkdir()
    for name in ("megatron-sha.txt", "pytorch-sha.txt"):
        source = ROOT / "experiments" / "35-reading-notes" / name
        (reading / name).write_bytes(source.read_bytes())
    text = (ROOT / "experiments" / "35-reading-notes" / "lab.toml").read_text()
    (reading / "lab.toml").write_text(text.split("\n[notes.")[0])
    (tmp_path / ".git").mkdir()
    with patch.object(figures, "_drawn", lambda stem, *_: f"<svg><!-- {stem} --></svg>"):
        generate(folder)
    return folder


def make_points() -> list[Metric]:
    """Return points of a curve whose times follow a line, and a bubble with its formula."""
    metrics = []
    for power in range(10, 21, 2):
        size, seconds = 1 << power, 1e-4 + (1 << power) * 1e-9
        metrics.append(
            Metric(
                id=f"collective.gloo.all_reduce.n2.{size}.blocking", value=seconds, unit="s",
                low=seconds * 0.9, high=seconds * 1.1,
                detail={"algbw": size / seconds, "busbw": size / seconds, "p95": seconds * 2},
            )
        )  # fmt: skip
    start = "pipeline.gpipe.p2.m8"
    metrics.append(
        Metric(id=f"{start}.bubble.shardlab.gloo", value=0.12, unit="share", low=0.11, high=0.14)
    )
    metrics.append(Metric(id=f"{start}.bubble-theory", value=1 / 9, unit="share", how="derived"))
    metrics += [
        Metric(id=f"tp.h128.share.{part}.shardlab.gloo", value=0.2, unit="share", how="derived")
        for part in draw_tensor_parallel.PARTS
    ]
    metrics.append(Metric(id="some.thing-new", value=3.5, unit="s", how="modelled"))
    metrics.append(
        Metric(
            id="timeline.000", value=1e-3, unit="s",
            detail={"track": "rank 0 compute", "name": "block 0 forward", "start": 0.0},
        )
    )  # fmt: skip
    return metrics


def list_findings(folder: Path) -> list[str]:
    cache = folder / "cache"
    library = Library(store=Store(cache), mirrors={}, offline=True, progress=lambda _: None)
    # The lab has no lock: for each path that a wheel lacks, all of its paths would be compared.
    with patch.object(package, "suggest_paths", return_value=[]):
        report = check_lab(folder, CheckSession(DiskCache(cache / "memo"), library), None)
    return [
        f"{finding.code} {finding.message}"
        for finding in report.findings
        if OURS.match(finding.code)
    ]


def test_the_checker_finds_nothing_until_a_reference_or_claims_file_changes(book: Path) -> None:
    assert list_findings(book) == []
    files = ("claims.toml", "results/reference.json", "figures/speed-up-dark.svg")
    for name in (*files, "results/reference.csv"):
        path = book / name
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        assert [finding for finding in list_findings(book) if finding.startswith("N404")], name
        path.write_bytes(before)


@pytest.mark.parametrize("language", page.LANGUAGES)
def test_every_metric_has_one_place_with_its_value_in_every_language(
    book: Path, language: str
) -> None:
    path = book / page.name("RESULTS", language)
    values = rows.read(path).values
    places = re.findall(r'<a id="([^"]+)"></a>\**([^*(|]+?)\**(?= \(| \|)', path.read_text("utf-8"))
    assert len(places) == len(values)
    assert {place: [shown] for place, shown in places} == values
    on_a_code_host = MarkdownIt("commonmark").enable("table").render(path.read_text("utf-8"))
    cells = re.findall(r'<td[^>]*><a id="([^"]+)"></a>', on_a_code_host)
    assert cells == [place for place, _ in places]
    metrics = load_result(book / results_page.REFERENCE).metrics()
    quotable = {
        name: metric for name, metric in metrics.items() if not name.startswith("timeline.")
    }
    assert values == {
        page.row_of(name): [quantity.format_metric(metric)] for name, metric in quotable.items()
    }


def test_the_machine_is_said_and_a_section_that_broke_off_is_too(tmp_path: Path) -> None:
    folder = make_lab(tmp_path, {metric.id: metric for metric in make_step(128, "gloo", 0.8)})
    broken = Section(
        status="partial", note="rank 1 was killed", metrics=make_step(128, "gloo", 0.8)
    )
    result = Result(provenance={"processor": "a processor", "cores": 2}, sections={"tp": broken})
    save(result, folder / results_page.REFERENCE)
    text = results_page.write(folder)[0].read_text("utf-8")
    assert "| processor | a processor |" in text
    assert "This section was interrupted: rank 1 was killed." in text


@pytest.mark.parametrize(
    ("load", "en", "es"),
    [
        (Load(rounds=9, dropped=2, core_seconds=90, foreign=9, worst_share=0.41),
         "\n2 of 9 rounds dropped: something else used up to 41 % of the cores.\n",
         "\n2 de 9 rondas descartadas: otra cosa usó hasta el 41 % de los núcleos.\n"),
        (Load(rounds=9, spoiled=7, core_seconds=90, foreign=45, worst_share=0.8),
         "\n**The machine was busy: don't quote this. In 7 of 9 rounds",
         "\n**La máquina estaba ocupada: no cites esto. En 7 de 9 rondas"),
    ],
)  # fmt: skip
def test_a_section_says_above_its_numbers_what_else_ran(
    tmp_path: Path, load: Load, en: str, es: str
) -> None:
    folder = make_lab(tmp_path, {})
    metrics = make_step(128, "gloo", 0.8)
    result = Result(sections={"tp": Section(status="complete", load=load, metrics=metrics)})
    save(result, folder / results_page.REFERENCE)
    for path, words in zip(results_page.write(folder), (en, es), strict=True):
        text = path.read_text("utf-8")
        assert 0 < text.find(words) < text.find('id="tp-h128')


@pytest.mark.parametrize("language", page.LANGUAGES)
def test_the_first_lines_and_the_wide_tables_give_each_number_as_its_row_has_it(
    book: Path, language: str
) -> None:
    path = LAB / page.name("RESULTS", language)
    text = path.read_text("utf-8")
    values = rows.read(path).values
    top = text[text.index("\n## ") : text.index("CSV")]
    assert top.count("\n- ") == 10
    assert top.count(" – ") > 12  # intervals
    linked = re.findall(r"\[([^]]+)\]\(#([\w.-]+)\)", text)
    assert len(linked) > 60
    assert [(row, shown) for shown, row in linked if values[row] != [shown]] == []


@pytest.mark.parametrize("committed", [True, False])
def test_what_can_be_downloaded_is_what_was_measured(book: Path, committed: bool) -> None:
    folder = LAB if committed else book
    with (folder / "results/reference.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    metrics = load_result(folder / results_page.REFERENCE).metrics()
    assert {line["id"]: float(line["value"]) for line in lines} == {
        name: metric.value for name, metric in metrics.items()
    }
    assert {line["id"]: line["formatted"] for line in lines} == {
        name: quantity.format_metric(metric) for name, metric in metrics.items()
    }
    collectives = [line for line in lines if line["id"].startswith("collective.")]
    assert collectives and all(line["busbw"] and line["p95"] for line in collectives)


def test_no_table_takes_what_another_is_for(book: Path) -> None:
    claimed_twice = [
        name
        for name, metric in load_result(book / results_page.REFERENCE).metrics().items()
        for table in TABLES
        if metric.name.fits(table.wanted) and (table.open or table.across)
    ]
    assert len(claimed_twice) == len(set(claimed_twice))


@pytest.mark.parametrize(
    "figures_drawn", ["two of eight", pytest.param("all", marks=pytest.mark.ci)]
)
def test_what_is_committed_is_what_is_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figures_drawn: str
) -> None:
    """Figures, pages and their seals, to the byte: a hand's edit of any of them fails here.

    A laptop draws each figure light, in English, for a desk, and dark, in Spanish, narrow.
    """
    committed = ROOT / "experiments/35-allreduce-costs"
    draw, widths = figures._drawn, {width: suffix for suffix, width in figures.WIDTHS.items()}

    def draw_some(stem: str, shade: Shade, metrics: Any, language: str, width: float) -> str:
        kind = shade.name, language, widths[width]
        if figures_drawn == "all" or kind in {("light", "en", ""), ("dark", "es", "-narrow")}:
            return draw(stem, shade, metrics, language, width)
        name = f"{figures.named(stem, language)}{widths[width]}-{shade.name}.svg"
        return (committed / "figures" / name).read_text("utf-8")

    monkeypatch.setattr(figures, "_drawn", draw_some)
    folder = tmp_path / committed.name
    shutil.copytree(committed, folder, ignore=shutil.ignore_patterns("local"))
    committed_files = {
        path: (committed / path.relative_to(folder)).read_bytes() for path in generate(folder)
    }
    assert [path.name for path, data in committed_files.items() if path.read_bytes() != data] == []


def test_a_result_of_this_machine_gets_a_page_beside_it_and_the_reference_none(
    tmp_path: Path,
) -> None:
    local = tmp_path / "local"
    local.mkdir()
    reference = ROOT / "experiments/35-allreduce-costs" / results_page.REFERENCE
    local_result = local / "2026-11-22T000000Z.json"
    shutil.copy(reference, local_result)
    assert candidates(reference, local) == candidates(None, local) == []
    assert [path.name for path in candidates(local_result, local)] == [
        "RESULTS.md",
        "RESULTS.es.md",
    ]
    page = (local / "RESULTS.md").read_text("utf-8")
    assert f"{local_result.name} sha256:" in page and "figures/" not in page
    assert "](../../../../docs/reference/bench.md)" in page
    assert 'id="tp-h128-slowdown-shardlab-gloo"' in page
