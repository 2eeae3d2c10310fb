"""The published runs: each has a source, and can be; what was left out had no part in its fit."""

import msgspec
import numpy as np
import pytest

from costlab.layouts import learn, runs, step_time
from costlab.layouts.learn import Scores
from costlab.layouts.model import LayoutError
from costlab.layouts.predict import predict
from costlab.layouts.stack_memory import plan_of
from pages.runs import predictions

SMALL = {"Korthikanti et al.", "Megatron-LM", "torchtitan"}


def test_each_published_run_has_its_source_and_a_time_or_no_memory() -> None:
    where = runs.sources()
    rows = runs.published()
    assert {run.source for run in rows} == set(where)
    assert all((run.seconds > 0) == (run.outcome == "ran") for run in rows)
    assert {run.outcome for run in rows} == {"ran", "oom"}
    assert all(run.place for run in rows)
    refused: dict[str, int] = {}
    for run in (*runs.timed(), *runs.timed(experts=True)):
        try:
            plan_of(run)
        except LayoutError:  # the embedding or the head has a piece of the pipeline of its own
            refused[run.source] = refused.get(run.source, 0) + 1
    assert refused == {"hagemann-2023": 7, "megatron-bridge-blackwell": 9}


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


def test_an_interval_is_wider_where_the_fit_knows_less() -> None:
    few = [run for run in runs.timed() if run.source == "torchtitan"]
    fit = learn.leave_out(few)[1][""]
    other = [msgspec.structs.replace(run, card="A100-80", dtype="bf16") for run in few[:1]]
    known, unknown = (
        fit.deviation(learn.slopes(step_time.tabulate(rows), fit.logs))[0] for rows in (few, other)
    )
    assert unknown > 1.2 * known


def test_published_scores_reach_what_was_wanted() -> None:
    scores = msgspec.json.decode(predictions.SCORES.read_bytes(), type=Scores)
    every = learn.average(scores.publications)
    assert every.median <= 0.12
    assert every.mean <= 0.16
    shares = [every.covered, scores.rows.covered, learn.average(scores.sources).covered]
    assert all(0.75 <= share <= 0.85 for share in shares)
    assert scores.by_own_runs[4].median <= 0.08
    for regret in scores.regret:
        assert regret.chosen <= regret.chance / 3


@pytest.mark.ci
def test_factors_and_scores_are_those_of_the_published_runs() -> None:
    fitted, scores = learn.score()
    stored = learn.load()
    assert fitted.rows == stored.rows == len(runs.timed())
    assert np.allclose(fitted.fit().logs, stored.fit().logs, atol=0.01)
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


def test_rows_that_no_fit_has_seen_are_inside_their_intervals() -> None:
    unseen = runs.unseen()
    fitted = {run.source for run in (*runs.timed(), *runs.timed(experts=True))}
    assert not fitted & {run.source for run in unseen}
    steps = predict(unseen)
    off = [abs(step.seconds / run.seconds - 1) for run, step in zip(unseen, steps, strict=True)]
    assert np.median(off) <= 0.12
    held = [step.low <= run.seconds <= step.high for run, step in zip(unseen, steps, strict=True)]
    assert np.mean(held) >= 0.8


def test_experts_multiply_their_rows_and_are_sent_them() -> None:
    run = runs.Run(
        card="H100", ranks=64, layers=8, hidden=1024, ffn=512, heads=16, kv_heads=16, gated=True,
        vocabulary=50000, sequence=2048, global_batch=64, stack="megatron-core", experts=64,
        top_k=4, expert=16,
    )  # fmt: skip
    work = step_time.count(run)
    attention, expert = 4 * 1024**2, 3 * 1024 * 512
    assert work["products"] == pytest.approx(3 * 2 * 2048 * (attention + 4 * expert) / 989e12)
    # Four times there and back, in 2 bytes; of 16 ranks 7 others are on the host, and 8 are not.
    rows = 4 * 2 * 4 * 2048 * 1024
    assert work["dispatched inside"] == pytest.approx(rows * 7 / 16 / 450e9)
    assert work["dispatched outside"] == pytest.approx(rows * 8 / 16 / 50e9)
    # An expert is on 4 hosts, and no rank beside it shares its way out.
    held = 8 * 4 * expert
    dense = 8 * attention + 50000 * 1024
    sent = 6 * (dense * 63 / 64 / 400e9 + held * 3 / 4 / 50e9)
    assert work["exchanged"] == pytest.approx(sent)


def test_the_factors_of_experts_are_fitted_without_moving_the_others() -> None:
    few = [run for run in runs.timed() if run.source == "torchtitan"]
    sparse = [run for run in runs.timed(experts=True) if run.source != "megatron-bridge-moe"]
    _, dense = learn.leave_out(few)
    _, fits = learn.leave_out(sparse, dense)
    of_experts = step_time.OF_EXPERTS
    for fit in fits.values():
        assert np.array_equal(fit.logs[~of_experts], dense[""].logs[~of_experts])
        assert not np.allclose(fit.logs[of_experts], dense[""].logs[of_experts], atol=0.01)
