"""`tools/bench fit FILE`: others' sweeps, by the same fit as this bench's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from costlab.record import options

FAR = 1024  # times beyond: who wants a GiB from a MiB sees what that is worth

if TYPE_CHECKING:
    from costlab.foreign.beyond import Tried
    from costlab.foreign.fitted import Fitted, Prediction


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
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text",
              show_default=True)  # fmt: skip
def fit(file: Path, at: tuple[int, ...], figure: Path | None, output_format: str) -> int:
    """Fit a sweep that something else measured.

    FILE is what nccl-tests printed or wrote with -J, a CSV with `bytes` and `us` (or `ms`,
    `seconds`; `operation` and `ranks` if it has them), or a result of this bench.

    Says how wrong a shorter sweep would have been about the sizes that this one has, so how far
    beyond them its lines may be believed.
    """
    from costlab.foreign import fitted, sweep_file
    from costlab.sections.fit.piecewise import LEAST

    found = sweep_file.read(file)
    few = [one for one in found if len(one.sizes) < LEAST]
    if few:
        raise click.UsageError(
            f"{file.name}: {few[0].told}: {len(few[0].sizes)} sizes; a line needs {LEAST} or more"
        )
    made = [fitted.fit(one, at) for one in found]
    if output_format == "json":
        from msgspec import json

        click.echo(json.format(json.encode(made), indent=1).decode())
    else:
        for one in made:
            _show(one)
    if figure:
        from costlab.foreign.draw_sweeps import drawn

        figure.write_text(drawn(made), "utf-8")
        click.echo(str(figure), err=True)
    return 0


def _show(one: Fitted) -> None:
    from costlab.record.quantity import per_cent, written
    from costlab.record.terminal import console, tabulate

    say = console().print
    least, most = written(one.sizes[0], "B"), written(one.sizes[-1], "B")
    say(f"\n[bold]{one.name}[/]: {len(one.sizes)} sizes, {least} to {most}")
    if one.wrong:
        say(f"[bold red]{one.wrong} rows had wrong results: what was timed there?[/]")
    rows = [
        (written(round(line.start), "B"), written(line.latency, "s"),
         written(line.bandwidth, "B/s") if line.bandwidth else "-")
        for line in one.lines
    ]  # fmt: skip
    tabulate(("from", "latency", "bandwidth"), ">>>", rows)
    said = f"the lines miss a size by {per_cent(one.residual)} (median)"
    if one.unseen is not None:
        said += f", one they haven't seen by {per_cent(one.unseen)}"
    say(said)
    largest: list[Tried] = []
    for trial in reversed(one.trials):  # a row a doubling
        doubled = not largest or trial.times >= 1.9 * largest[-1].times
        if trial.size == one.sizes[-1] and trial.times <= FAR and doubled:
            largest.append(trial)
    if largest:
        say(f"\nhad the sweep ended earlier, {most} would have been predicted")
        rows = [
            (written(trial.fitted, "B"), f"{trial.times:,.4g}", f"{trial.error * 100:+.0f} %")
            for trial in largest
        ]
        tabulate(("up to", "times beyond", "wrong by"), ">>>", rows)
    for prediction in one.predictions:
        say(_said(prediction))


def _said(one: Prediction) -> str:
    from costlab.foreign.fitted import NOTHING
    from costlab.record.quantity import per_cent, written

    at = f"[bold]{written(one.size, 'B')}: {written(one.seconds, 's')}[/]"
    if one.beyond == 1:
        return f"{at}, between sizes measured"
    trusted = NOTHING
    if one.error is not None:
        trusted = f"as far, this sweep's own were wrong by up to {per_cent(one.error)}"
    return f"{at}, [yellow]{one.beyond:,.3g} times beyond what was measured: {trusted}[/]"
