"""Tables of the kernels' speed: made from committed results, and none from a disturbed machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from costlab.publish import kernels_page
from costlab.publish.kernels_page import DisturbedError
from costlab.record import samples
from costlab.record.result import Load, Result, Section, load
from costlab.record.statistics import over_launches
from costlab.record.words import Words, say
from costlab.sections.kernels import Case, Column, Goal, cases

DOCS = kernels_page.PAGES["en"].parent
PAGE = "before\n<!-- measured: step -->\nold\n<!-- /measured: step -->\nafter\n"
PROVENANCE: dict[str, str | float | int | bool | list[str]] = {
    "date": "2026-01-02T03:04:05+00:00", "processor": "a processor", "cores": 2, "torch": "2",
    "megatron-core": "0", "commit": "0123456789abcdef",
}  # fmt: skip
CASE = Case(
    name="step", about="", build="", setting="hidden", row=Words("hidden", "oculta"),
    rows=(1024, 2048),
    columns=(Column("b", "torch", "b"), Column("a", "shardlab", "a", "á", "gloo")),
    goals=(Goal("a", "b", 2.5, (1024,)),),
)  # fmt: skip
TIMES = {"b": [[0.1, 0.2, 0.3], [0.1] * 3], "a": [[0.2, 0.1, 9.0], [0.4] * 3]}


def make_result(times: dict[str, list[list[float]]], busy: Load | None = None) -> Result:
    """Return a result of one row, from the rounds of each contestant's launches."""
    launches = [
        dict(zip(times, rounds, strict=True)) for rounds in zip(*times.values(), strict=True)
    ]
    by_launch = [list(CASE.metrics(1024, launch)) for launch in launches]
    metrics = [over_launches(same) for same in zip(*by_launch, strict=True)]
    section = Section(status="complete", load=busy, metrics=metrics)
    return Result(provenance=PROVENANCE, sections={CASE.section: section})


def test_a_ratio_is_taken_round_by_round_and_launch_by_launch() -> None:
    ratio = make_result(TIMES).metrics()["kernels.step.1024.ratio.shardlab.torch.gloo"]
    assert [ratio.low, ratio.value, ratio.high] == pytest.approx([2.0, 3.0, 4.0])
    assert ratio.detail == {"hidden": 1024, "launches": 2}


def test_the_table_names_the_base_once_and_the_spread_of_the_others() -> None:
    result = make_result(TIMES)
    english, spanish = (kernels_page.render(result, CASE, language) for language in ("en", "es"))
    assert english.startswith("| hidden | b | a |\n|--:|--:|--:|\n")
    assert "| 1,024 | 150 | 300 (**3.00**, 2.00–4.00) |\n" in english
    assert spanish.startswith("| oculta | b | á |\n")
    assert "| 1024 |" in spanish
    assert "2048" not in english  # a row that was not measured


def test_under_the_table_stands_what_else_ran() -> None:
    busy = Load(rounds=9, spoiled=7, core_seconds=18, foreign=9, worst_share=0.8)
    english, spanish = (
        kernels_page.render(make_result(TIMES, busy), CASE, language) for language in ("en", "es")
    )
    assert "In 7 of 9 rounds something else used the cores" in english
    assert "no cites esto" in spanish
    assert say("kernels.unwatched", "en") in kernels_page.render(make_result(TIMES), CASE, "en")


def test_a_goal_is_judged_by_the_middle_launch_and_names_what_missed_it() -> None:
    (line,) = kernels_page.missed(make_result(TIMES), CASE)
    assert re.search(r"step, hidden 1024: a takes 3\.00× .* b, .* 2\.50×", line)
    assert not kernels_page.missed(make_result(TIMES | {"a": [[0.2] * 3] * 2}), CASE)


def test_a_disturbed_case_is_not_published(tmp_path: Path) -> None:
    calm, disturbed = ([1.0] * 8 + [slow] * 2 for slow in (2.9, 9.0))
    kernels_page.refuse_disturbed(make_result({"a": [calm] * 2, "b": [calm] * 2}), CASE)
    result = make_result({"a": [calm, disturbed], "b": [calm, calm]})
    with pytest.raises(DisturbedError, match=r"kernels\.step\.1024\.step\.shardlab\.gloo: 9\.0"):
        kernels_page.publish(result, CASE, folder=tmp_path, pages={})
    assert not list(tmp_path.iterdir())


def test_a_case_of_a_run_becomes_a_result_and_a_table_between_its_marks(tmp_path: Path) -> None:
    page, rounds = tmp_path / "page.md", {"a": [[0.2, 0.3]], "b": [[0.1, 0.1]]}
    page.write_text(PAGE, "utf-8")
    run = make_result(rounds)
    run.sections["kernels.other"] = Section()
    kernels_page.publish(run, CASE, folder=tmp_path, pages={"en": page})
    assert list(load(tmp_path / "step.json").sections) == ["kernels.step"]
    assert samples.load(tmp_path / "step.json") == {
        "kernels.step.1024.step.shardlab.gloo": rounds["a"],
        "kernels.step.1024.step.torch": rounds["b"],
    }
    table = kernels_page.render(kernels_page.read(CASE, tmp_path), CASE, "en")
    assert page.read_text("utf-8") == PAGE.replace("old", f"\n{table}\n")
    page.write_text("no block", "utf-8")
    with pytest.raises(ValueError, match="add it where the table goes"):
        kernels_page.fill(page, "step", "new")


def test_measured_holds_a_result_of_each_case_and_what_bench_md_names() -> None:
    files = {path.name for path in kernels_page.MEASURED.glob("*.json*")}
    published = [case.name for case in cases().values() if case.published]
    results = {f"{name}.{kind}" for name in published for kind in ("json", "samples.json.gz")}
    assert results <= files
    for page in ("bench.md", "bench.es.md"):
        rows = re.findall(r"^\| `([\w-]+\.json)` \|", (DOCS / page).read_text("utf-8"), re.M)
        assert files - results == set(rows)


@pytest.mark.parametrize("language", kernels_page.PAGES)
def test_each_table_of_the_page_is_what_was_measured(language: str) -> None:
    page = kernels_page.PAGES[language].read_text("utf-8")
    published = [case for case in cases().values() if case.published]
    marks = re.findall(r"<!-- measured: (\S+) -->", page)
    assert sorted(marks) == sorted(case.name for case in published)
    for case in published:
        result = kernels_page.read(case)
        kernels_page.refuse_disturbed(result, case)
        assert f"\n{kernels_page.render(result, case, language)}\n" in page, case.name
        names = {case.step(row, column).id for row in case.rows for column in case.columns}
        assert names <= {metric.id for metric in result.metrics().values() if metric.series}
