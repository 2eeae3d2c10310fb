"""The published runs: each has a source, and can be; what was left out had no part in its fit."""

import msgspec
import numpy as np
import pytest

from costlab.layouts import learn, runs, step_time
from costlab.layouts.learn import Scores
from pages.runs import predictions

SMALL = {"Korthikanti et al.", "Megatron-LM", "torchtitan"}


def test_each_published_run_has_its_source_and_a_time_or_no_memory() -> None:
    where = runs.sources()
    rows = runs.published()
    assert {run.source for run in rows} == set(where)
    assert all((run.seconds > 0) == (run.outcome == "ran") for run in rows)
    assert {run.outcome for run in rows} == {"ran", "oom"}
    assert all(run.place for run in rows)
    for run in runs.timed():
        runs.check(run)


def test_a_publication_is_predicted_from_the_others_alone() -> None:
    where = runs.sources()
    few = [run for run in runs.timed() if where[run.source]["publication"] in SMALL]
    slower = [
        msgspec.structs.replace(run, seconds=3 * run.seconds) if run.source == "torchtitan" else run
        for run in few
    ]
    first, _ = learn.leave_out(few)
    second, _ = learn.leave_out(slower)
    ours = first.source == "torchtitan"
    assert np.allclose(second.missed[ours], first.missed[ours] - np.log(3), atol=1e-6)
    assert not np.allclose(second.missed[~ours], first.missed[~ours], atol=1e-3)


def test_the_interval_of_the_others_holds_its_share_of_them() -> None:
    random = np.random.default_rng(0)
    groups = {str(n): random.normal(0, 0.1, 4000) for n in range(3)}
    assert learn.widen(groups) == pytest.approx(0.1 * 1.2816, rel=0.03)  # 80 % of a normal
    assert learn.coverage(groups)["0"] == pytest.approx(0.8, abs=0.02)


def test_published_scores_reach_what_was_wanted() -> None:
    scores = msgspec.json.decode(predictions.SCORES.read_bytes(), type=Scores)
    every = learn.average(scores.publications)
    assert every.median <= 0.12
    assert every.mean <= 0.16
    assert 0.75 <= every.covered <= 0.85
    assert scores.by_own_runs[4].median <= 0.08
    for regret in scores.regret:
        assert regret.chosen <= regret.chance / 3


@pytest.mark.ci
def test_factors_and_scores_are_those_of_the_published_runs() -> None:
    fitted, scores = learn.score()
    stored = learn.load()
    assert fitted.rows == stored.rows == len(runs.timed())
    assert np.allclose(fitted.values(), stored.values(), atol=0.01)
    written = msgspec.json.decode(predictions.SCORES.read_bytes(), type=Scores)
    now, then = learn.average(scores.publications), learn.average(written.publications)
    assert now.median == pytest.approx(then.median, abs=0.002)
    assert now.mean == pytest.approx(then.mean, abs=0.002)


def test_the_terms_of_a_layer_are_the_work_over_the_data_sheets_rates() -> None:
    run = runs.Run(
        card="H100", ranks=16, layers=8, hidden=1024, ffn=4096, heads=16, kv_heads=16,
        vocabulary=50000, sequence=2048, global_batch=16, stack="fsdp", tensor=8, stages=1,
        micro_batch=2, zero=3, recompute="full",
    )  # fmt: skip
    work = step_time.count(run)
    tokens, weights = 2 * 2048, 12 * 1024**2 / 8
    assert work["products"] == pytest.approx(4 * 2 * tokens * weights / 989e12)
    # Six all-reduces of the activations, and of parameters two gathers and one reduce-scatter.
    assert work["reduced"] == pytest.approx(6 * 2 * 7 / 8 * 2 * tokens * 1024 / 450e9)
    assert work["gathered"] == pytest.approx(3 * 2 * weights / 2 / 50e9)
    assert work["micro-batches"] == 4
