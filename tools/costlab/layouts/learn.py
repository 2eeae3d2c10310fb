"""What published runs teach: the factors of a step's time, how wrong they are, what own runs add.

A publication is left out whole: its rows are predicted from factors that it had no part in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from costlab.layouts.runs import Run, sources, timed
from costlab.layouts.step_time import FACTORS, NAMES, OF_EXPERTS, Array, log_seconds, tabulate

FITTED = Path(__file__).with_name("fitted.json")
ROW = 0.1  # spread of one row about its prediction, in logarithms
# Own runs: spread of a machine as a whole, of each factor on it, and of one run.
MACHINE, FACTOR, OWN_ROW = 0.12, 0.2, 0.06
OWN_RUNS = (0, 1, 2, 4, 8)
DRAWS = 20  # of own runs from a source
FEWEST = 12  # rows of a source from which own runs are drawn
SWEPT = ("bloom-prequel", "vtrain-multi", "vtrain-single", "hagemann-2023")
SWEPT_EXPERTS = ("megatron-bridge-moe",)
COVERAGE = 0.8
_GUESS = np.log([guess for guess, _ in FACTORS.values()])
_SPREAD = np.array([spread for _, spread in FACTORS.values()])


class Fit(NamedTuple):
    """Factors that were fitted: their logarithms, and the covariance of these."""

    logs: Array
    covariance: Array

    def deviation(self, slope: Array) -> Array:
        """Return the standard deviation of predicted log seconds, from their slopes."""
        return np.asarray(np.sqrt(np.einsum("ij,jk,ik->i", slope, self.covariance, slope)))


class Fitted(msgspec.Struct):
    """What predictions are made from.

    Args:
        logs: the logarithm of each factor.
        covariance: of these logarithms, a line a factor.
        interval: by own runs, how many standard deviations 80 % of left-out rows are off.
        experts: the same of models with experts.
        rows, publications: of dense models, what it was fitted to.
    """

    logs: dict[str, float]
    covariance: list[str]
    interval: dict[int, float]
    experts: dict[int, float]
    rows: int
    publications: int

    def fit(self) -> Fit:
        """Return the factors in the order of NAMES."""
        return Fit(np.array([self.logs[name] for name in NAMES]),
                   np.array([line.split() for line in self.covariance], dtype=float))  # fmt: skip


def load() -> Fitted:
    """Return what was fitted to all published runs."""
    return msgspec.json.decode(FITTED.read_bytes(), type=Fitted)


def fit(
    work: Mapping[str, NDArray[Any]], measured: Array, weight: Array, dense: Fit | None = None
) -> Fit:
    """Return the factors that fit rows best, held near the first guesses.

    Args:
        work: of the rows, from `tabulate`.
        measured: their log seconds.
        weight: of each row.
        dense: the fit to dense models; only the factors of experts are fitted then.
    """
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    free = OF_EXPERTS if dense else ~OF_EXPERTS
    start = dense or Fit(_GUESS, np.diag(_SPREAD**2))

    def complete(values: Array) -> Array:
        logs = start.logs.copy()
        logs[free] = values
        return logs

    def miss(values: Array) -> Array:
        rows = weight * (log_seconds(work, complete(values)) - measured) / ROW
        return np.concatenate([rows, (values - _GUESS[free]) / _SPREAD[free]])

    logs = complete(least_squares(miss, _GUESS[free], loss="soft_l1", max_nfev=60).x)
    known = slopes(work, logs)[:, free] * weight[:, None] / ROW
    covariance = start.covariance.copy()
    covariance[np.ix_(free, free)] = np.linalg.inv(known.T @ known + np.diag(_SPREAD[free] ** -2))
    return Fit(logs, covariance)


def slopes(work: Mapping[str, NDArray[Any]], logs: Array, step: float = 1e-4) -> Array:
    """Return how log seconds change with each factor's logarithm: rows by factors."""
    base = log_seconds(work, logs)
    return np.stack([log_seconds(work, logs + step * unit) - base for unit in np.eye(len(logs))],
                    axis=1) / step  # fmt: skip


def learn_own(slope: Array, missed: Array, unmeasured: Array) -> Array:
    """Return what own runs take off the errors of other runs, in logarithms.

    Args:
        slope: of the own runs, from `slopes`.
        missed: predicted less measured log seconds of the own runs.
        unmeasured: slopes of the runs to correct.
    """
    measured, rest = (np.insert(rows, 0, 1, axis=1) for rows in (slope, unmeasured))
    spread = np.r_[MACHINE, np.full(slope.shape[1], FACTOR)] ** 2
    noise = OWN_ROW**2 * np.eye(len(measured))
    covariance = measured * spread @ measured.T + noise
    moved = spread * (measured.T @ np.linalg.solve(covariance, missed))
    return np.asarray(rest @ moved)


class Rows(msgspec.Struct):
    """Published rows, each predicted without its publication."""

    runs: list[Run]
    missed: Array  # predicted less measured log seconds
    slope: Array
    deviation: Array  # of the prediction
    source: NDArray[Any]
    publication: NDArray[Any]


def leave_out(
    runs: Sequence[Run], dense: Mapping[str, Fit] | None = None
) -> tuple[Rows, dict[str, Fit]]:
    """Predict each publication from the others; return that, and each fit by what it left out.

    Args:
        runs: published runs.
        dense: for runs with experts, the fits to dense runs; "" has that to all.
    """
    where = sources()
    source = np.array([run.source for run in runs])
    publication = np.array([where[name]["publication"] for name in source])
    work = tabulate(runs)
    measured = np.log([run.seconds for run in runs])
    weight = 2 * np.array([(publication == name).sum() for name in publication]) ** -0.5
    missed, deviation = np.zeros((2, len(runs)))
    slope, fits = np.zeros((len(runs), len(NAMES))), {}
    for name in ("", *sorted(set(publication))):
        out = publication == name
        base = dense.get(name, dense[""]) if dense else None
        fits[name] = fit(_pick(work, ~out), measured[~out], weight[~out], base)
        missed[out] = log_seconds(_pick(work, out), fits[name].logs) - measured[out]
        slope[out] = slopes(_pick(work, out), fits[name].logs)
        deviation[out] = fits[name].deviation(slope[out])
    return Rows(list(runs), missed, slope, deviation, source, publication), fits


def _pick(work: Mapping[str, NDArray[Any]], rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {name: values[rows] for name, values in work.items()}


def with_own_runs(rows: Rows, count: int) -> dict[str, tuple[Array, Array]]:
    """Return the errors that remain in each larger source when `count` of its runs are own.

    In logarithms, and in standard deviations of the predictions.
    """
    random = np.random.default_rng(0)
    remain = {}
    for name in sorted(set(rows.source)):
        index = np.flatnonzero(rows.source == name)
        if len(index) < FEWEST:
            continue
        errors, deviations = [], []
        for _ in range(DRAWS if count else 1):
            order = random.permutation(index)
            drawn, rest = order[:count], order[count:]
            example = rows.slope[drawn], rows.missed[drawn]
            errors.append(rows.missed[rest] - learn_own(*example, rows.slope[rest]))
            deviations.append(rows.deviation[rest])
        missed = np.concatenate(errors)
        remain[name] = missed, missed / np.concatenate(deviations)
    return remain


def widen(errors: Mapping[str, Array]) -> float:
    """Return the half width that holds 80 % of errors; each group counts alike."""
    sizes = np.concatenate([np.abs(group) for group in errors.values()])
    weights = np.concatenate([np.full(len(group), 1 / len(group)) for group in errors.values()])
    order = np.argsort(sizes)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(sizes[order][np.searchsorted(share, COVERAGE)])


def coverage(groups: Mapping[str, Array]) -> dict[str, float]:
    """Return, for each group left out, the share of its rows in the interval of the others.

    A single group has its own.
    """
    return {
        name: float(np.mean(np.abs(errors) <= widen(
            {k: v for k, v in groups.items() if k != name or len(groups) == 1})))
        for name, errors in groups.items()
    }  # fmt: skip


def regret(rows: Rows, source: str) -> tuple[int, float, float]:
    """Return sweeps of a source, the mean cost of the layout ranked first, and that of chance.

    A sweep is one model on one machine with one batch, in three layouts or more, or two if it has
    experts; what a choice costs is the share by which it is slower than the fastest of them.
    """
    sweeps: dict[Any, dict[Any, list[tuple[float, float]]]] = {}
    for run, missed in zip(rows.runs, rows.missed, strict=True):
        if run.source == source:
            day = run.place[-5:] if source == "bloom-prequel" else ""  # its machine changed
            model = (run.layers, run.hidden, run.heads, run.sequence, run.card, run.dtype)
            layout = (run.tensor, run.stages, run.chunks, run.expert, run.micro_batch,
                      run.recompute, run.stack)  # fmt: skip
            sweep = sweeps.setdefault((*model, run.global_batch, run.ranks, day), {})
            sweep.setdefault(layout, []).append((run.seconds * float(np.exp(missed)), run.seconds))
    least = 2 if source in SWEPT_EXPERTS else 3
    costs = []
    for sweep in sweeps.values():
        if len(sweep) >= least:
            predicted, measured = np.array([np.mean(each, axis=0) for each in sweep.values()]).T
            over = measured / measured.min() - 1
            costs.append((over[predicted.argmin()], over.mean()))
    chosen, chance = np.mean(costs, axis=0)
    return len(costs), float(chosen), float(chance)


class Score(msgspec.Struct):
    """How wrong the predictions of some left-out rows are."""

    name: str
    rows: int
    median: float
    mean: float
    covered: float  # share in the interval


class Regret(msgspec.Struct):
    """What the layout that is ranked first costs over the fastest, and a layout by chance."""

    source: str
    sweeps: int
    chosen: float
    chance: float


class Scores(msgspec.Struct):
    """All that the page of predictions shows."""

    publications: list[Score]
    rows: Score  # each row alike
    sources: list[Score]
    by_own_runs: dict[int, Score]  # by own runs, over sources: their mean
    regret: list[Regret]
    experts: list[Score]  # of models with experts, by publication
    experts_by_own_runs: dict[int, Score]


def hold(rows: Rows) -> NDArray[Any]:
    """Return which rows are in the interval that the larger sources of other publications have."""
    owner = dict(zip(rows.source, rows.publication, strict=True))
    off = np.abs(rows.missed) / rows.deviation
    large = {name: off[rows.source == name] for name in sorted(owner)
             if np.sum(rows.source == name) >= FEWEST}  # fmt: skip
    inside = np.zeros(len(off), dtype=bool)
    for publication in sorted(set(rows.publication)):
        out = rows.publication == publication
        inside[out] = off[out] <= widen(
            {name: errors for name, errors in large.items() if owner[name] != publication}
        )
    return inside


def score() -> tuple[Fitted, Scores]:
    """Leave each publication out, and fit to all: the constants, and how wrong they are."""
    rows, fits = leave_out(timed())
    inside = hold(rows)
    experts, fits = leave_out(timed(experts=True), fits)
    # Their largest source has five cards, and own runs are of one.
    experts.source = np.array([f"{run.source} {run.card}" for run in experts.runs])
    interval, by_own_runs = _after_own_runs(rows)
    interval_of_experts, experts_by_own_runs = _after_own_runs(experts)
    covered = np.abs(experts.missed) <= interval_of_experts[0] * experts.deviation
    return (
        Fitted(dict(zip(NAMES, np.round(fits[""].logs, 4).tolist(), strict=True)),
               [" ".join(f"{value:.5g}" for value in line) for line in fits[""].covariance],
               interval, interval_of_experts, len(rows.runs), len(set(rows.publication))),
        Scores(_tables(rows.publication, rows.missed, inside),
               score_errors("", rows.missed, float(np.mean(inside))),
               _tables(rows.source, rows.missed, inside), by_own_runs,
               [Regret(name, *regret(each, name))
                for each, names in ((rows, SWEPT), (experts, SWEPT_EXPERTS)) for name in names],
               _tables(experts.publication, experts.missed, covered), experts_by_own_runs),
    )  # fmt: skip


def _tables(labels: NDArray[Any], missed: Array, inside: NDArray[Any]) -> list[Score]:
    return [score_errors(name, missed[labels == name], float(np.mean(inside[labels == name])))
            for name in sorted(set(labels))]  # fmt: skip


def _after_own_runs(rows: Rows) -> tuple[dict[int, float], dict[int, Score]]:
    interval, scores = {}, {}
    for count in OWN_RUNS:
        remain = with_own_runs(rows, count)
        off = {name: deviations for name, (_, deviations) in remain.items()}
        shares = coverage(off)
        interval[count] = round(widen(off), 4)
        of_sources = [score_errors(name, each[0], shares[name]) for name, each in remain.items()]
        scores[count] = average(of_sources, str(count))
    return interval, scores


def score_errors(name: str, errors: Array, covered: float) -> Score:
    """Return how wrong predictions are, from errors in logarithms."""
    off = np.abs(np.expm1(errors))
    return Score(str(name), len(errors), float(np.median(off)), float(off.mean()), covered)


def average(scores: Sequence[Score], name: str = "") -> Score:
    """Return the mean over publications, each of which counts alike."""
    median, mean, covered = np.mean([(s.median, s.mean, s.covered) for s in scores], axis=0)
    return Score(name, sum(s.rows for s in scores), float(median), float(mean), float(covered))
