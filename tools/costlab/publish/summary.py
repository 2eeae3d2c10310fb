"""A result on a terminal: what one looks for first, beside the reference where there is one."""

from collections.abc import Mapping

from costlab.record import options
from costlab.record.names import Name, Wanted
from costlab.record.noise import describe
from costlab.record.quantity import attribute, count, format_metric, format_value, spread
from costlab.record.result import Metric, Result, ResultError, load
from costlab.record.words import console, tabulate

# What is worth a line after the whole lab; a section run alone shows all that it has.
HEADLINES: tuple[Wanted, ...] = (
    {"topic": "fit", "operation": "all_reduce", "what": ("latency", "bandwidth")},
    {"topic": "tp", "what": ("speedup", "speedup-over-threads", "crossover")},
    {"topic": "fsdp", "what": ("ratio", "hidden-share", "communication-cost", "peak")},
    {"topic": "pipeline", "what": ("bubble", "ratio")},
    {"topic": "gpu", "what": "efficiency"},
)
MANY = 60  # metrics of a section shown line by line


def show(result: Result, *, whole: bool) -> None:
    """Print a result.

    Args:
        whole: of the whole lab, so headlines only, then the claims.
    """
    say, reference = console().print, _reference()
    for name, section in result.sections.items():
        if section.status == "partial":
            say(f"[red]{name} broke off: {section.note}[/]")
        if ran := section.load:  # before any of its numbers, in red where none is to be quoted
            style = (
                "bold red" if ran.spoiled else "yellow" if ran.dropped or ran.cut_short else "dim"
            )
            say(f"\n[{style}]{name}: {describe(ran).en}[/]")
        if name == "collectives":
            _collectives(section.metrics, only="all_reduce" if whole else "")
            continue
        wanted = HEADLINES if whole else ({},)
        metrics = [m for m in section.metrics if any(map(m.name.fits, wanted))]
        _lines(name, metrics[:MANY], reference)
        if len(metrics) > MANY:
            say(f"  … and {len(metrics) - MANY} more in the file")
    if whole:
        from costlab.judge import judge

        say("\n[bold]claims[/]")
        judge.show(judge.verdicts(result))


def _reference() -> Mapping[str, Metric]:
    try:
        return load(options.REFERENCE).metrics() if options.REFERENCE.exists() else {}
    except ResultError:  # another schema, or half a file: not what this run is about
        return {}


def _lines(name: str, metrics: list[Metric], reference: Mapping[str, Metric]) -> None:
    """Print metrics line by line, with the reference's beside them."""
    if not metrics:
        return
    columns, align, rows = ["", "on", "here", "spread", "n"], "<<><>", []
    if reference:
        columns, align = [*columns, "reference"], align + ">"
    for metric in metrics:
        reference_cells = [_reference_cell(reference.get(metric.id), metric)] if reference else []
        how = "" if metric.how == "measured" else metric.how
        cells = (format_metric(metric), f"[dim]{spread(metric)}[/]", count(metric))
        rows.append([metric.id, attribute(metric).device, *cells, *reference_cells, how])
    tabulate([*columns, ""], align + "<", rows, title=name)


def _reference_cell(reference: Metric | None, metric: Metric) -> str:
    """Return the reference's value, and on which device where that is another."""
    if reference is None:
        return ""
    elsewhere = (
        "" if reference.device == metric.device else f" on {attribute(reference).device or 'none'}"
    )
    return f"[dim]{format_metric(reference)}{elsewhere}[/]"


def _collectives(metrics: list[Metric], *, only: str) -> None:
    """Print a table for each operation: sizes down, links across."""
    named = [(name.name, name) for name in metrics]
    for operation, ranks in dict.fromkeys((name.operation, name.ranks) for name, _ in named):
        if only and operation != only:
            continue
        metrics_of_operation = {
            name: m for name, m in named if (name.operation, name.ranks) == (operation, ranks)
        }
        _curves(f"{operation}, {ranks} ranks", metrics_of_operation)


def _curves(title: str, metrics: Mapping[Name, Metric]) -> None:
    links, rows = list(dict.fromkeys(name.link for name in metrics)), []
    heads = [head for link in links for head in (link, "[dim]spread[/]", "busbw", "back-to-back")]
    for size in sorted({name.size for name in metrics}):
        cells = [format_value(float(size), "B")]
        by = {(name.link, name.mode): m for name, m in metrics.items() if name.size == size}
        for link in links:
            blocking, train = by.get((link, "blocking")), by.get((link, "back-to-back"))
            if blocking is None:
                cells += ["", "", ""]
            else:
                busbw = format_value(float(blocking.detail["busbw"]), "B/s")
                cells += [format_metric(blocking), f"[dim]{spread(blocking)}[/]", busbw]
            cells.append(format_metric(train) if train else "")
        rows.append(cells)
    tabulate(["size", *heads], ">" * (1 + len(heads)), rows, title=title)
