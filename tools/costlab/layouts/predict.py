"""`tools/bench predict`: how long a step takes, how far that may be off, which layout to try."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from costlab.layouts import learn, runs, step_time
from costlab.layouts.model import refuse
from costlab.layouts.model_config import model_from, model_options, table_options
from costlab.layouts.runs import BITS, CARDS, FACTS, RECOMPUTE, STACKS, Run
from costlab.layouts.stack_memory import estimate, plan_of, usable_bytes, worst_rank

SHOWN = 10  # layouts that a search prints
MICRO_BATCHES = (1, 2, 4, 8)
MODEL = ("layers", "hidden", "ffn", "heads", "kv_heads", "head_size", "vocabulary", "experts",
         "top_k")  # fmt: skip
LAYOUT = ("tensor", "stages", "chunks", "context", "expert", "zero", "micro_batch", "recompute")


class Prediction(msgspec.Struct):
    """A step of one run: seconds, the interval that held 80 % of left-out rows, and its terms."""

    run: dict[str, Any]
    seconds: float
    low: float
    high: float
    own_runs: int
    dominating: str
    terms: dict[str, float]
    tokens_per_second: float
    mfu: float
    gb: float | None = None


def predict(wanted: Sequence[Run], measured_runs: Sequence[Run] = ()) -> list[Prediction]:
    """Predict runs, corrected by own measured runs of the same machine.

    Raises:
        ValueError: a run can't be, or an own run has no seconds.
    """
    for run in (*wanted, *measured_runs):
        runs.check(run)
    if any(not 0 < run.seconds < runs.MOST for run in measured_runs):
        raise ValueError("a measured run needs seconds=NUMBER, more than 0")
    fitted = learn.load()
    fit = fitted.fit()
    logs, work = fit.logs, step_time.tabulate(wanted)
    slope = learn.slopes(work, logs)
    parts = step_time.terms(work, logs)
    seconds = np.sum(list(parts.values()), axis=0)
    if measured_runs:
        measured = step_time.tabulate(measured_runs)
        missed = step_time.log_seconds(measured, logs) - np.log(
            [run.seconds for run in measured_runs]
        )
        correction = learn.learn_own(learn.slopes(measured, logs), missed, slope)
        seconds = seconds * np.exp(-correction)
    count = max(k for k in fitted.interval if k <= len(measured_runs))
    deviation, predictions = fit.deviation(slope), []
    for index, run in enumerate(wanted):
        interval = fitted.experts if run.experts else fitted.interval
        took, factor = float(seconds[index]), float(np.exp(interval[count] * deviation[index]))
        share = {name: float(part[index]) for name, part in parts.items()}
        total = sum(share.values())
        tokens = run.global_batch * run.sequence / took / run.ranks
        rate = CARDS[run.card].flops[min(16, BITS[run.dtype])] * 1e12
        predictions.append(Prediction(
            {name: getattr(run, name) for name in ("card", "ranks", "stack", *LAYOUT)},
            took, took / factor, took * factor, len(measured_runs),
            max(share, key=share.__getitem__),
            {name: took * part / total for name, part in share.items()}, tokens,
            tokens * flops_per_token(run) / rate,
        ))  # fmt: skip
    return predictions


def flops_per_token(run: Run) -> float:
    """Return a token's operations in forward and backward, without recomputation."""
    dim = run.head_size or run.hidden // run.heads
    ffn = (2 + run.gated) * run.ffn * max(1, run.top_k)
    layer = run.hidden * (2 * dim * (run.heads + run.kv_heads) + ffn)
    attention = 6 * run.layers * run.sequence * run.heads * dim  # half of the square
    return 6 * (run.layers * layer + run.hidden * run.vocabulary) + attention


def layouts(base: Run) -> Iterator[tuple[Run, float]]:
    """Yield the layouts of a run's ranks that can be, tensor within a domain, and their GB."""
    divisors = [n for n in range(1, base.ranks + 1) if base.ranks % n == 0]
    in_memory = STACKS[base.stack].attention in ("softmax", "eager")
    again = RECOMPUTE if in_memory else ("none", "full")  # selective drops scores, else not kept
    tensors = [n for n in divisors if n <= min(8, CARDS[base.card].domain)]
    shared = [n for n in divisors if base.experts % n == 0] if base.experts else [1]
    for tensor, stages, expert, micro_batch, recompute in itertools.product(
        tensors, divisors, shared, MICRO_BATCHES, again
    ):
        run = msgspec.structs.replace(base, tensor=tensor, stages=stages, chunks=1, expert=expert,
                                      micro_batch=micro_batch, recompute=recompute)  # fmt: skip
        try:
            runs.check(run)
            gb = estimate_gb(run)
        except ValueError:
            continue
        yield run, gb


def parse_own(text: str, base: Run) -> Run:
    """Return an own run from `tensor=8,stages=2,seconds=14.2`; what it doesn't name is base's."""
    named = dict(part.partition("=")[::2] for part in text.split(","))
    unknown = [name for name in named if name not in Run.__struct_fields__]
    if unknown or "" in named.values():
        raise ValueError(f"--measured {text!r}: write NAME=VALUE,…,seconds=NUMBER with the names "
                         f"of options, as tensor or micro_batch")  # fmt: skip
    try:
        return msgspec.convert({**msgspec.structs.asdict(base), **named}, Run, strict=False)
    except msgspec.ValidationError as fault:
        raise ValueError(f"--measured {text!r}: {fault}") from None


def rank(base: Run, measured_runs: Sequence[Run] = ()) -> list[Prediction]:
    """Predict the layouts that fit into a card's memory, fastest first.

    Raises:
        ValueError: the run can't be, or no layout fits.
    """
    runs.check(msgspec.structs.replace(base, tensor=1, stages=1, chunks=1, context=1, expert=1,
                                       global_batch=base.ranks, micro_batch=1))  # fmt: skip
    room = usable_bytes(base.card) / 1e9
    fitting = [(run, gb) for run, gb in layouts(base) if gb <= room]
    if not fitting:
        raise ValueError(f"no layout of {base.ranks} {base.card} fits into {room:.0f} GB a card")
    predictions = predict([run for run, _ in fitting], measured_runs)
    for prediction, (_, gb) in zip(predictions, fitting, strict=True):
        prediction.gb = gb
    return sorted(predictions, key=lambda prediction: prediction.seconds)


def estimate_gb(run: Run) -> float:
    """Return the bytes that the fullest rank likely needs, in 10⁹.

    Raises:
        LayoutError: the run's stages can't be cut so.
    """
    return estimate(worst_rank(*plan_of(run))).likely / 1e9


@click.command("predict")
@click.option("--card", required=True, help=f"{', '.join(CARDS)}.")
@click.option("--stack", required=True, help=f"What the program does: {', '.join(STACKS)}.")
@click.option("--network", type=float, default=0, help="Gbit/s and card; as the card's page says.")
@model_options
@table_options(FACTS["options"])
@click.option("--recompute", default="none", show_default=True, help=f"{', '.join(RECOMPUTE)}.")
@click.option("--dtype", default="bf16", show_default=True, help=f"{', '.join(BITS)}.")
@click.option("--measured", multiple=True, metavar="NAME=VALUE,…,seconds=S",
              help="An own run; may be repeated.")  # fmt: skip
@click.option("--search", is_flag=True, help="Rank the layouts that fit, best first.")
def command(
    config: Path | None,
    ignore: tuple[str, ...],
    measured: tuple[str, ...],
    search: bool,
    output_format: str,
    **named: Any,
) -> int:
    """Predict the time of a step, and how far that may be off.

    The interval held 80 % of the rows of publications that had no part in the fit.
    """
    try:
        base = _read(config, ignore, named)
        measured_runs = [parse_own(text, base) for text in measured]
        predictions = rank(base, measured_runs) if search else predict([base], measured_runs)
    except ValueError as fault:
        raise click.UsageError(str(fault)) from None
    if output_format == "json":
        from msgspec import json

        encoded = json.encode(predictions if search else predictions[0])
        click.echo(json.format(encoded, indent=1).decode())
    elif search:
        _show_layouts(predictions)
    else:
        _show(predictions[0])
    return 0


def _read(config: Path | None, ignored: Sequence[str], named: dict[str, Any]) -> Run:
    """Return the run that the options name, with a model's config where they name none."""
    values = {name: value for name, value in named.items() if value is not None}
    for name in runs.REQUIRED:
        if name not in values and not (config and name in MODEL):
            option = name.replace("_", "-")
            raise ValueError(f"--{option} is missing: name it, or a --config that has it")
    model = model_from(config, ignored, {name: values.get(name) for name in (*MODEL, "gated")})
    sizes = {name: getattr(model, name) for name in (*MODEL, "gated")}
    if model.experts:
        sizes["ffn"] = model.expert_ffn
    else:
        sizes["top_k"] = values.get("top_k", 0)
    refuse((model.shared_ffn or model.dense_layers, "layers with shared experts, or with experts "
            "in some layers only, have no published step times"))  # fmt: skip
    return Run(**{**values, **sizes})


def _show(step: Prediction) -> None:
    from costlab.record.terminal import console

    say = console().print
    say(f"[bold]{step.seconds:.3g} s[/] a step, {step.low:.3g} to {step.high:.3g} s "
        f"with {learn.COVERAGE:.0%} (own runs: {step.own_runs})")  # fmt: skip
    say(f"{step.tokens_per_second:,.0f} tokens/s and card, {step.mfu:.1%} of the data sheet's "
        f"operations; most of it: {step.dominating}")  # fmt: skip
    for name, seconds in step.terms.items():
        say(f"  {name:<26}{seconds:10.3g} s {seconds / step.seconds:6.1%}")


def _show_layouts(predictions: Sequence[Prediction]) -> None:
    from costlab.record.terminal import console, tabulate

    head = ("tensor", "stages", "expert", "micro-batch", "recompute", "GB", "s a step", "80 %",
            "most of it")  # fmt: skip
    rows = [
        (*(str(layout.run[name]) for name in ("tensor", "stages", "expert", "micro_batch")),
         layout.run["recompute"], f"{layout.gb:.0f}", f"{layout.seconds:.3g}",
         f"{layout.low:.3g} to {layout.high:.3g}", layout.dominating)
        for layout in predictions[:SHOWN]
    ]  # fmt: skip
    tabulate(head, ">>>><>>><", rows)
    console().print(f"{len(predictions)} layouts fit; measure the first few before you choose")
