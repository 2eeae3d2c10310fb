"""The command line of tools/bench: all (the default), one section, claims, report, compare, fit.

torch takes seconds to import and is not needed to read a result: whatever needs it is imported
where it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from costlab.external_sweeps.command import fit
from costlab.layouts.fits import command as fits
from costlab.layouts.predict import command as predict
from costlab.record import options
from costlab.sections import plan
from costlab.sections.kernels import kernels

if TYPE_CHECKING:
    from costlab.record.result import Result

BROKE_OFF, INTERRUPTED = 1, 130
COMMANDS = {
    "all": "Measure the whole lab, and judge the claims.",
    "collectives": "Time and bandwidth of six operations by size, and their fit.",
    "tp": "The tensor-parallel step by hidden size, and where time goes.",
    "fsdp": "The sharded step: overlap, peak memory, the largest model.",
    "pipeline": "Measured bubbles of GPipe and 1F1B beside the arithmetic.",
    "one-gpu": "One GPU: products at TP shapes, copies beneath them, memory.",
    "counts": "What no machine changes: collectives, bytes, orderings.",
}


def main() -> None:
    """Run the command line and exit: 0 done, 1 broke off or claims differ, 2 misuse."""
    try:
        status = bench(standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _fail("interrupted", INTERRUPTED)
    except click.MissingParameter as fault:  # click writes each choice on its own line
        _fail(" ".join(fault.format_message().split()), fault.exit_code)
    except click.ClickException as fault:
        _fail(fault.format_message(), fault.exit_code)
    except BrokenPipeError:  # a reader that went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BROKE_OFF)
    except Exception as fault:
        if os.environ.get("SHARDBOOK_TRACEBACK"):
            raise
        _fail(_one_line(fault), BROKE_OFF)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(line: str, status: int) -> NoReturn:
    _say_error(line)
    sys.exit(_leave(status))


def _say_error(line: str) -> None:
    click.echo(f"error: {line}", err=True)
    _report_reason(line)


def _report_reason(line: str) -> None:
    """Tell torchrun, whose summary ends with the reason of the rank that it saw fail first."""
    if "TORCHELASTIC_ERROR_FILE" in os.environ:
        from shardlab.comm.exit_reason import report_reason

        report_reason(line)


def _one_line(fault: Exception) -> str:
    if isinstance(fault, OSError):
        what = fault.filename or "the output"
        return f"{what} can't be read or written: {fault.strerror or fault}"
    message = " ".join(f"{type(fault).__name__}: {fault}".split())[:300]
    return f"a fault of the bench: {message} (set SHARDBOOK_TRACEBACK=1 and report it)"


class _Bench(click.Group):
    """A group that measures the whole lab where no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        helped = any(word in ("-h", "--help", "--version") for word in args)
        if not helped and (not args or args[0].startswith("-")):
            args = ["all", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_Bench, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
def bench() -> None:
    """Measure what sharded training costs on this machine; without COMMAND, the whole lab.

    Launched by torchrun it joins torchrun's ranks. Results go to
    experiments/35-allreduce-costs/results/local/, which git ignores.
    """


bench.add_command(fit)
bench.add_command(fits)
bench.add_command(kernels)
bench.add_command(predict)
_OPTIONS = [
    click.option("--profile", type=click.Choice(["quick", "full"]), default="quick",
                 show_default=True, help="quick: under five minutes on two cores."),
    click.option("--ranks", type=click.IntRange(1, 1024), help="Ranks; 2, or one a GPU."),
    click.option("--sizes", type=options.Sizes(), default=(), metavar="1K:64M",
                 help="Bytes of a collective, doubled from LEAST to MOST."),
    click.option("--hidden", type=options.Sizes(), default=(), metavar="64:2048",
                 help="Hidden sizes, doubled from LEAST to MOST."),
    click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto",
                 show_default=True),
    options.SEED,
    click.option("--minutes", type=click.FloatRange(0, min_open=True), metavar="MINUTES",
                 help="Time for all parts together; 10, or 40 with --profile full."),
    click.option("--timeout", type=click.FloatRange(1), default=60.0, show_default=True,
                 help="Seconds that a collective, or a silence, may take."),
    options.OUT,
    options.RESUME,
    options.FORMAT,
]  # fmt: skip


def _measuring(command: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _add(name: str, words: str) -> None:
    @bench.command(name, help=words)
    @_measuring
    def command(**settings: Any) -> int:
        names = {"all": list(plan.MODULES), "collectives": ["collectives", "fit"]}.get(name, [name])
        return _measure(names, whole=name == "all", **settings)


for _name, _words in COMMANDS.items():
    _add(_name, _words)


def _measure(names: list[str], *, whole: bool, output_format: str, **settings: Any) -> int:
    from costlab.run.measuring import measured

    with measured(names, whole=whole, arguments=sys.argv[1:], **settings) as run:
        if run.result_file is None:  # a rank that doesn't speak for the run
            for fault in run.faults:
                _report_reason(str(fault))
            return _leave(BROKE_OFF if run.faults else 0)
        if output_format == "json":
            options.write_json(run.result.bare())
        else:
            from costlab.publish import summary

            summary.show(run.result, whole=whole)
        click.echo(
            f"{'partial: ' if run.faults else ''}{options.relative(run.result_file)}", err=True
        )
        if any(section.status == "cut" for section in run.result.sections.values()):
            file = options.relative(run.result_file)
            click.echo(
                f"note: the time was up: `tools/bench --resume {file}` measures the rest, and "
                "--minutes gives it more time", err=True,
            )  # fmt: skip
        for fault in run.faults:
            _say_error(str(fault))
        return _leave(BROKE_OFF if run.faults else 0)


def _leave(status: int) -> int:
    """Return a status; where torchrun's ranks broke off, end at once: some are gone already."""
    if status and "RANK" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


@bench.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@options.FORMAT
def claims(file: Path | None, output_format: str) -> int:
    """Judge the claims on FILE.

    By default on this machine's last result, or the reference.
    """
    from costlab.judge import judge

    result = _result(file)
    verdicts = judge.verdicts(result)
    if output_format == "json":
        options.write_json(verdicts)
    else:
        judge.show(verdicts)
    differing = judge.differences_from_reference(result)
    for line in differing:
        click.echo(f"error: {line}", err=True)
        _report_reason(line)
    return BROKE_OFF if differing else 0


@bench.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--adopt", is_flag=True, help="Make it the reference; write its page and figures.")
def report(file: Path | None, adopt: bool) -> int:
    """Show FILE, or with --adopt make it the reference.

    By default FILE is this machine's last result; `make serve` then shows its page.

    Numbers that pages quote follow the new reference, and are listed: read their sentences again.
    """
    from costlab.publish import generate, summary

    result = _result(file)
    if not adopt:
        summary.show(result, whole=True)
        generate.candidates(file or options.newest(), options.LOCAL)
        return 0
    for path in generate.adopt(file or options.newest() or options.REFERENCE, options.LAB):
        click.echo(options.relative(path))
    for change in generate.update(options.LAB, options.pages()):
        click.echo(str(change).replace(f"{options.ROOT}/", ""))
    return 0


@bench.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@options.FORMAT
def compare(first: Path, second: Path, output_format: str) -> int:
    """Put results ONE and OTHER side by side.

    Says what differs beyond noise.
    """
    from costlab.judge import compare as side_by_side

    compared = side_by_side.compare(_result(first), _result(second))
    if output_format == "json":
        options.write_json(compared)
    else:
        side_by_side.show(compared, first.stem, second.stem)
    return BROKE_OFF if compared.differs else 0


def _result(file: Path | None) -> Result:
    from costlab.record.result import load

    path = file or options.newest()
    if path is None:
        raise click.UsageError("nothing measured yet: run tools/bench, or name a FILE")
    return load(path)
