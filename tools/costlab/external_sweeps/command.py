"""`tools/bench fit FILE`: others' sweeps, by the same fit as this bench's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from costlab.record import options

FAR = 1024  # times beyond: who wants a GiB from a MiB sees what that is worth

if TYPE_CHECKING:
    from costlab.external_sweeps.fitted import Fitted, Prediction, Tried


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--at",
    type=options.Sizes(),
    default=(),
    metavar="1G,4G",
    help="Bytes whose time is wanted, measured or not.",
)
@click.option(
    "--figure",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OUT.svg",
    help="Draw points and lines there.",
)
@options.FORMAT
@click.option("--operation", default="", metavar="NAME",
              help="The collective, as all_reduce, of a file that doesn't name it.")  # fmt: skip
def fit(
    file: Path, at: tuple[int, ...], figure: Path | None, output_format: str, operation: str
) -> int:
    """Fit a sweep that something else measured.

    FILE is a log with what nccl-tests printed, whatever stands in front of its lines, or what it
    wrote with -J or RCCL's tests as JSON lines, a CSV with `bytes` and `us` (or `ms`,
    `seconds`; `operation` and `ranks` if it has them), or a result of this bench.

    Says how wrong a shorter sweep would have been about the sizes that this one has, so how far
    beyond them its lines may be believed.
    """
    from costlab.external_sweeps import fitted, sweep_file
    from costlab.sections.piecewise import LEAST

    read = sweep_file.read(file, operation)
    sweeps = read.measured
    for note in read.notes:
        click.echo(f"note: {file.name}: {note}", err=True)
    few = [sweep for sweep in sweeps if len(sweep.sizes) < LEAST]
    if few:
        raise click.UsageError(
            f"{file.name}: {few[0].key}: {len(few[0].sizes)} sizes; a line needs {LEAST} or more"
        )
    fits = [fitted.fit(sweep, at) for sweep in sweeps]
    if output_format == "json":
        options.write_json(fits)
    else:
        for sweep in fits:
            _show(sweep)
    if figure:
        from costlab.external_sweeps.fitted import drawn

        figure.write_text(drawn(fits), "utf-8")
        click.echo(str(figure), err=True)
    return 0


def _show(fitted: Fitted) -> None:
    from costlab.record.quantity import format_value, per_cent
    from costlab.record.words import console, tabulate

    say = console().print
    least, largest_size = format_value(fitted.sizes[0], "B"), format_value(fitted.sizes[-1], "B")
    say(f"\n[bold]{fitted.name}[/]: {len(fitted.sizes)} sizes, {least} to {largest_size}")
    if fitted.wrong:
        say(f"[bold red]{fitted.wrong} rows had wrong results: what was timed there?[/]")
    rows = [
        (format_value(round(line.start), "B"), format_value(line.latency, "s"),
         format_value(line.bandwidth, "B/s") if line.bandwidth else "-")
        for line in fitted.lines
    ]  # fmt: skip
    tabulate(("from", "latency", "bandwidth"), ">>>", rows)
    line = f"the lines miss a size by {per_cent(fitted.residual)} (median)"
    if fitted.unseen is not None:
        line += f", one they haven't seen by {per_cent(fitted.unseen)}"
    say(line)
    largest: list[Tried] = []
    for trial in reversed(fitted.trials):  # a row a doubling
        doubled = not largest or trial.times >= 1.9 * largest[-1].times
        if trial.size == fitted.sizes[-1] and trial.times <= FAR and doubled:
            largest.append(trial)
    if largest:
        say(f"\nhad the sweep ended earlier, {largest_size} would have been predicted")
        rows = [
            (format_value(trial.fitted, "B"), f"{trial.times:,.4g}", f"{trial.error * 100:+.0f} %")
            for trial in largest
        ]
        tabulate(("up to", "times beyond", "wrong by"), ">>>", rows)
    for prediction in fitted.predictions:
        say(_prediction_line(prediction))


def _prediction_line(prediction: Prediction) -> str:
    from costlab.external_sweeps.fitted import NOTHING
    from costlab.record.quantity import format_value, per_cent

    at = f"[bold]{format_value(prediction.size, 'B')}: {format_value(prediction.seconds, 's')}[/]"
    if prediction.extrapolation == 1:
        return f"{at}, between sizes measured"
    trusted = NOTHING
    if prediction.error is not None:
        trusted = f"as far, this sweep's own were wrong by up to {per_cent(prediction.error)}"
    times = f"{prediction.extrapolation:,.3g} times beyond what was measured"
    return f"{at}, [yellow]{times}: {trusted}[/]"
