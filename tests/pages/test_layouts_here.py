"""Layouts of a small GPT on CPU ranks: the predicted order is that of measured steps."""

import pytest

from pages.ranks import run_on_ranks
from pages.runs import layouts_here
from pages.runs.layouts_here import Constants, Layout

HERE = Constants(50e9, 4e9, 1e-3, 1e-8, {2: (1e-4, 1e9), 4: (3e-4, 5e8)}, sharing=2.0)


def test_a_slower_link_slows_the_layouts_that_use_it() -> None:
    slow = Constants(50e9, 4e9, 1e-3, 1e-8, {2: (1e-4, 1e9), 4: (3e-2, 5e6)}, sharing=2.0)
    for run in layouts_here.layouts(4):
        first, second = layouts_here.predict(run, HERE), layouts_here.predict(run, slow)
        assert (second > first) == (4 in (run.tensor, run.data))


def test_more_micro_batches_send_more_often() -> None:
    cut = [run for run in layouts_here.layouts(4) if run.tensor == 4]
    often, seldom = sorted(cut, key=lambda run: run.micro_batch)
    assert layouts_here.predict(often, HERE) > layouts_here.predict(seldom, HERE)


def test_the_score_is_the_cost_of_the_layout_ranked_first() -> None:
    rows = [
        Layout(1, 1, 4, 1, 1.0, 2.2),
        Layout(4, 1, 1, 1, 2.0, 2.0),
        Layout(1, 4, 1, 1, 3.0, 4.0),
    ]
    chosen, chance, order = layouts_here.score(rows)
    assert chosen == pytest.approx(0.1)
    assert chance == pytest.approx(0.3667, abs=1e-3)
    assert order == pytest.approx(0.5)


@pytest.mark.ci
def test_the_layout_ranked_first_costs_a_third_of_chance() -> None:
    """On a machine that nothing else uses."""
    _, measured = run_on_ranks(4, layouts_here.measure)[0]
    chosen, chance, order = layouts_here.score(measured)
    assert chosen <= chance / 3
    assert order > 0.5
