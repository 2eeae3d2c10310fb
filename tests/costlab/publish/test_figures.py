"""Figures are the same each time, have real text, exist in light and dark, and invent nothing."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from costlab.publish import page
from costlab.publish.figures import draw_all_reduce, draw_overlap, figures
from costlab.publish.figures.plotting import DARK, LIGHT, WIDE, figure
from costlab.record.result import Metric, Result, Section, load
from costlab.record.words import texts
from costlab.sections.fully_sharded import timeline
from tests.costlab.publish.test_results_page import make_points
from tests.costlab.tiny_run import LAB, make_step
from tests.docs.page import ROOT


def result(*metrics: Metric) -> Result:
    return Result(sections={"all": Section(status="complete", metrics=list(metrics))})


@pytest.fixture(scope="module")
def drawings() -> dict[str, str]:
    """Every committed figure by its file's name; test_results_page.py draws them again."""
    return {path.name: path.read_text("utf-8") for path in (LAB / "figures").iterdir()}


def draw_figures(folder: Path) -> dict[str, str]:
    crossover = Metric(id="tp.crossover.shardlab.gloo", value=180, unit="hidden", how="derived")
    metrics = [
        *make_points(),
        *make_step(128, "gloo", 0.8),
        *make_step(512, "gloo", 1.6),
        crossover,
    ]
    return {path.name: path.read_text("utf-8") for path in figures.write(result(*metrics), folder)}


def test_each_figure_is_drawn_in_light_and_dark_in_both_languages(
    drawings: dict[str, str],
) -> None:
    stems = [
        f"{stem}{language}{narrow}"
        for stem in figures.FIGURES
        for language in ("", "-es")
        for narrow in ("", "-narrow")
    ]
    assert set(drawings) == {f"{stem}-{s}.svg" for stem in stems for s in ("light", "dark")}
    for name, text in drawings.items():
        paper = LIGHT.paper if name.endswith("-light.svg") else DARK.paper
        assert f"fill: {paper}" in text and 'role="img"' in text and "aria-label=" in text


def test_the_overlaps_caption_says_how_wide_the_drawn_model_is() -> None:
    caption = texts("captions")["overlap"]
    assert f"hidden {timeline.HIDDEN}." in caption.en
    assert f"tamaño oculto {timeline.HIDDEN}." in caption.es


def test_text_stays_text_in_the_readers_own_font(drawings: dict[str, str]) -> None:
    text = drawings["speed-up-light.svg"]
    crossover = load(LAB / "results/reference.json").metrics()["tp.crossover.shardlab.gloo"]
    assert f"crosses at {crossover.value:.0f}</text>" in text and "hidden size</text>" in text
    assert "gather</text>" in drawings["overlap-dark.svg"]
    assert f"cruza en {crossover.value:.0f}</text>" in drawings["speed-up-es-light.svg"]
    assert "aceleración sobre" in drawings["speed-up-es-light.svg"]
    assert "speed-up" not in drawings["speed-up-es-light.svg"]
    for drawing in drawings.values():
        families = re.findall(r"font(?:-family)?: ([^;\"]*)", drawing)
        assert families and all("system-ui" in family for family in families)


@pytest.fixture
def in_english_for_a_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw two files a figure: light and dark."""
    monkeypatch.setattr(page, "LANGUAGES", ("en",))
    monkeypatch.setattr(figures, "WIDTHS", {"": WIDE})


@pytest.mark.usefixtures("in_english_for_a_desk")
def test_what_a_result_lacks_is_not_drawn_and_an_older_drawing_goes(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    older = [f"{stem}-{s}.svg" for stem in figures.FIGURES for s in ("light", "dark")]
    for name in older:
        (tmp_path / "figures" / name).write_text("older", "utf-8")
    written = figures.write(result(*make_step(128, "gloo", 0.8)), tmp_path)
    assert len(written) == 2 and all(path.name.startswith("speed-up-") for path in written)
    assert all(path.read_text("utf-8") != "older" for path in written)
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(
        path.name for path in written
    )


@pytest.mark.usefixtures("in_english_for_a_desk")
def test_one_link_and_one_size_are_enough_to_draw(tmp_path: Path) -> None:
    point = make_points()[0]
    assert len(figures.write(result(point), tmp_path)) == 2


def test_sizes_are_named_far_enough_apart_to_be_read_and_the_largest_always() -> None:
    sizes = [1 << place for place in range(10, 27)] + [3 << 20, 24 << 20]
    named = draw_all_reduce.marked(sorted(sizes))
    assert named == [1 << place for place in range(26, 9, -3)]
    assert draw_all_reduce.marked([4096]) == [4096]


def make_collectives() -> dict[str, Metric]:
    """Return a step with several collectives in flight, as `timeline` stores it."""
    spans = [
        ("compute", "block 0 forward", 2, 6),
        ("compute", "block 0 backward", 6, 20),
        ("communication", "gather root", 0, 2),
        ("communication", "gather block 0", 1, 5),
        ("communication", "gather block 1", 8, 12),
        ("communication", "reduce block 1", 8, 11),
    ]
    return {
        f"timeline.{number:03}": Metric(
            id=f"timeline.{number:03}",
            value=(end - start) / 1e3,
            unit="s",
            how="measured",
            detail={"track": f"rank 0 {track}", "name": name, "start": start / 1e3},
        )
        for number, (track, name, start, end) in enumerate(spans)
    }


def test_what_is_in_flight_together_is_drawn_side_by_side_never_over_one_another() -> None:
    for metrics in (make_collectives(), load(LAB / "results/reference.json").metrics()):
        with figure(LIGHT, width=7.2, height=3.4) as (_, axes):
            assert draw_overlap.draw(axes, LIGHT, metrics, figures.translator("en"))
            bars = [bar.get_bbox() for bar in axes.patches]
        assert len(bars) == len(draw_overlap.spans(metrics))
        for first, second in combinations(bars, 2):
            across = min(first.x1, second.x1) - max(first.x0, second.x0)
            down = min(first.y1, second.y1) - max(first.y0, second.y0)
            assert across < 1e-6 or down <= 0, (first, second)  # ms: compute's spans touch


def test_each_kind_of_collective_has_lanes_of_its_own_and_no_more_than_it_needs() -> None:
    lanes = draw_overlap.lanes(draw_overlap.spans(make_collectives()))
    names = {
        name: [[span.name for span in lane] for lane in lanes_of_kind]
        for name, lanes_of_kind in lanes.items()
    }
    assert names == {
        "compute": [["block 0 forward", "block 0 backward"]],
        "gather": [["gather root", "gather block 1"], ["gather block 0"]],
        "reduce": [["reduce block 1"]],
    }


def test_the_plots_have_the_sites_colours_by_meaning() -> None:
    css = (ROOT / "docs/assets/stylesheets/meanings.css").read_text("utf-8")
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in css.split("@media screen")
    )
    for shade, colors in ((LIGHT, light), (DARK, dark)):
        assert shade.links == {link: colors[link] for link in ("gloo", "shared-memory")}
        for name in ("own", "sent", "partial"):
            assert shade.parts[name] == (colors[name], colors[f"{name}-soft"])
        assert shade.color_link("gloo", 2) == colors["gloo"]
        others = {shade.color_link(link, place) for place, link in ((1, "nccl"), (2, "threads"))}
        assert len(others) == 2 and not others & {*shade.links.values()}
