"""Figures: the same each time, text as text, light and dark, and nothing where nothing is known."""

from __future__ import annotations

import re
from pathlib import Path

from costlab import figures
from costlab.plotting import DARK, LIGHT
from costlab.result import Metric, Result, Section
from tests.costlab.test_results_page import points
from tests.costlab.tiny_run import step


def result(*metrics: Metric) -> Result:
    return Result(sections={"all": Section(status="complete", metrics=list(metrics))})


def drawn(folder: Path) -> dict[str, str]:
    crossover = Metric(id="tp.crossover.gloo", value=180, unit="hidden", how="derived")
    metrics = [*points(), *step(128, "gloo", 0.8), *step(512, "gloo", 1.6), crossover]
    return {path.name: path.read_text("utf-8") for path in figures.write(result(*metrics), folder)}


def test_each_figure_is_drawn_in_light_and_dark(tmp_path: Path) -> None:
    found = drawn(tmp_path)
    assert set(found) == {f"{stem}-{s}.svg" for stem in figures.FIGURES for s in ("light", "dark")}
    for name, text in found.items():
        paper = LIGHT.paper if name.endswith("-light.svg") else DARK.paper
        assert f"fill: {paper}" in text and 'role="img"' in text and "aria-label=" in text


def test_figures_are_the_same_each_time_and_hold_no_date(tmp_path: Path) -> None:
    first, second = drawn(tmp_path / "a"), drawn(tmp_path / "b")
    assert first == second
    assert not re.search(r"20\d\d-\d\d-\d\d", "".join(first.values()))


def test_text_stays_text_in_the_readers_own_font(tmp_path: Path) -> None:
    found = drawn(tmp_path)
    text = found["speed-up-light.svg"]
    assert "crosses at 180</text>" in text and "hidden size</text>" in text
    assert "gather</text>" in found["overlap-dark.svg"]
    for one in found.values():
        families = re.findall(r"font(?:-family)?: ([^;\"]*)", one)
        assert families and all("system-ui" in family for family in families)


def test_what_a_result_lacks_is_not_drawn_and_an_older_drawing_goes(tmp_path: Path) -> None:
    assert len(drawn(tmp_path)) == 6
    left = figures.write(result(*step(128, "gloo", 0.8)), tmp_path)
    assert {path.name for path in left} == {"speed-up-light.svg", "speed-up-dark.svg"}
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(
        path.name for path in left
    )


def test_one_link_and_one_size_are_enough_to_draw(tmp_path: Path) -> None:
    one = points()[0]
    assert len(figures.write(result(one), tmp_path)) == 2
