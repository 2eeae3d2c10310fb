"""`tools/bench predict`: how long a step takes, how far that may be off, which layout to try."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import click
import msgspec
import numpy as np
from click.core import ParameterSource

from costlab.layouts import learn, step_time
from costlab.layouts.model import LayoutError, refuse
from costlab.layouts.model_config import layout_options, parse_measured, read_layout
from costlab.layouts.runs import BITS, CARDS, LAYOUT, MODEL, RECOMPUTE, STACKS, Run
from costlab.layouts.stack_memory import estimate, plan_of, usable_bytes, worst_rank
from costlab.record.options import write_json

SHOWN = 10  # layouts that a search prints
MICRO_BATCHES = (1, 2, 4, 8)
# A layout that any batch and any model has, as the start of a search.
ANY = {"tensor": 1, "stages": 1, "chunks": 1, "context": 1, "expert": 1, "micro_batch": 1,
       "global_batch": None, "recompute": "none"}  # fmt: skip


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
        LayoutError: a run can't be, or an own run has no seconds.
    """
    for run in (*wanted, *measured_runs):
        plan_of(run)
    refuse((any(run.seconds <= 0 for run in measured_runs), "a measured run needs its seconds"))
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


def layouts(base: Run, named: Collection[str] = ()) -> Iterator[tuple[Run, float]]:
    """Yield the layouts of a run's ranks that can be, tensor within a domain, and their GB.

    Args:
        base: the run; settings that are not layouts' stay as they are.
        named: settings of a layout that stay, too.
    """
    divisors = [n for n in range(1, base.ranks + 1) if base.ranks % n == 0]
    in_memory = STACKS[base.stack].attention in ("softmax", "eager")
    choices: dict[str, Sequence[Any]] = {
        "tensor": [n for n in divisors if n <= min(8, CARDS[base.card].domain)],
        "stages": [n for n in divisors if base.layers % n == 0 or (base.layers + 2) % n == 0],
        "expert": [n for n in divisors if base.experts % n == 0] if base.experts else [1],
        "micro_batch": MICRO_BATCHES,
        # Selective recomputation drops scores, which other attention doesn't keep.
        "recompute": RECOMPUTE if in_memory else ("none", "full"),
    }
    choices |= {name: [getattr(base, name)] for name in choices.keys() & set(named)}
    for layout in itertools.product(*choices.values()):
        run = msgspec.structs.replace(base, **dict(zip(choices, layout, strict=True)))
        try:
            gb = estimate_gb(run)
        except LayoutError:
            continue
        yield run, gb


def rank(
    base: Run, measured_runs: Sequence[Run] = (), named: Collection[str] = ()
) -> list[Prediction]:
    """Predict the layouts that fit into a card's memory, fastest first; `named` settings stay.

    Raises:
        LayoutError: the run can't be, or no layout fits.
    """
    room = usable_bytes(base.card) / 1e9
    possible = list(layouts(base, named))
    if not possible:
        plan_of(base)  # says why, if the reason is a named setting
    refuse((not possible, f"no layout of {base.ranks} ranks can cut this model and its batch"))
    fitting = [(run, gb) for run, gb in possible if gb <= room]
    refuse((not fitting, f"no layout of {base.ranks} {base.card} fits into {room:.0f} GB a card"))
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
@click.option("--stack", required=True, type=click.Choice(list(STACKS)),
              metavar="STACK", help=f"What the program does: {', '.join(STACKS)}.")  # fmt: skip
@click.option("--network", type=float, default=0, help="Gbit/s and card; as the card's page says.")
@click.option("--dtype", type=click.Choice(list(BITS)), default="bf16", show_default=True,
              help="Of products.")  # fmt: skip
@click.option("--search", is_flag=True,
              help="Rank the layouts that fit, best first; named settings stay.")  # fmt: skip
@layout_options("seconds")
def command(
    card: str, measured: tuple[str, ...], search: bool, output_format: str, **named: Any
) -> int:
    """Predict the time of a step, and how far that may be off.

    The interval held 80 % of the rows of publications that had no part in the fit.
    """
    source, default = click.get_current_context().get_parameter_source, ParameterSource.DEFAULT
    stays = [name for name in LAYOUT if source(name) != default]
    try:
        base = _read(card, {**named, **(ANY if search else {})})
        own_runs = parse_measured(measured, "seconds", named)
        measured_runs = [_read(card, own, seconds) for own, seconds in own_runs]
        if search:
            kept = {name: named[name] for name in stays}
            batch = named["global_batch"] or base.global_batch
            base = msgspec.structs.replace(base, **kept, global_batch=batch)
            predictions = rank(base, measured_runs, stays)
        else:
            predictions = predict([base], measured_runs)
    except LayoutError as fault:
        raise click.UsageError(str(fault)) from None
    if output_format == "json":
        write_json(predictions if search else predictions[0])
    elif search:
        _show_layouts(predictions)
    else:
        _show(predictions[0])
    return 0


def _read(card: str, named: dict[str, Any], seconds: float = 0) -> Run:
    """Return the run that the options name."""
    model, plan = read_layout(named)
    refuse((model.shared_ffn or model.dense_layers, "layers with shared experts, or with experts "
            "in some layers only, have no published step times"),
           (plan.recompute == "alternate" and plan.zero < 3,
            "recompute = alternate: only programs that cut weights, too, have published step "
            "times with it: choose --zero 3"))  # fmt: skip
    settings = {name: getattr(model, name) for name in MODEL}
    settings |= {name: getattr(plan, name) for name in LAYOUT}
    settings |= {name: named[name] for name in ("stack", "network", "dtype", "ranks", "sequence")}
    settings |= {"ffn": model.expert_ffn} if model.experts else {"top_k": 0}
    if plan.recompute == "alternate":  # as torchtitan's rows call it
        settings["recompute"] = "selective"
    return Run(card=card, global_batch=plan.global_batch, seconds=seconds, **settings)


def _show(step: Prediction) -> None:
    from costlab.record.words import console

    say = console().print
    say(f"[bold]{step.seconds:.3g} s[/] a step, {step.low:.3g} to {step.high:.3g} s "
        f"with {learn.COVERAGE:.0%} (own runs: {step.own_runs})")  # fmt: skip
    say(f"{step.tokens_per_second:,.0f} tokens/s and card, {step.mfu:.1%} of the data sheet's "
        f"operations; most of it: {step.dominating}")  # fmt: skip
    for name, seconds in step.terms.items():
        say(f"  {name:<26}{seconds:10.3g} s {seconds / step.seconds:6.1%}")


def _show_layouts(predictions: Sequence[Prediction]) -> None:
    from costlab.record.words import console, tabulate

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
