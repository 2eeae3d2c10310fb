"""Two results side by side: what differs beyond noise, and what is the same.

One metric says little: of three hundred some always stand out by chance. So metrics are judged by
*family*, what is measured the same way at several sizes: its change is the median of its members'
ratios. A family differs when its change is larger than two runs of the same code on the same
machine show (`NOISE`), larger than the scatter of its members allows, and most of its members agree
on the direction; of a family of few, half of the members' spreads must lie apart besides. What is
counted has no noise: any change of it is one.

A machine that is slower altogether, for a minute or for ever, moves all families alike. That is
told as one finding, and families are then judged against it.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

import click
import msgspec

from costlab.record.names import family_of, parse
from costlab.record.noise import describe
from costlab.record.provenance import MACHINE
from costlab.record.quantity import format_metric
from costlab.record.result import Metric, Result
from costlab.record.words import console as terminal
from costlab.record.words import tabulate

# What a family's change may be by chance, beside the machine's: in repeated runs on two cores the
# changes of families of 15 and more had a standard deviation of 0.045.
NOISE = {"s": 0.12, "B/s": 0.12, "ratio": 0.10, "share": 0.10, "B": 0.02}
ERRORS = 2.5  # standard errors, from how its members scatter, that a change must exceed besides
AGREE = 0.75  # of a family's members that change the way it does
WHOLE = 0.12  # what all of a machine's times together may change by: they drift by 7 % and more
_FEW = 6  # members: of fewer, what lies between launches and rounds is not averaged out
_FAMILIES_OF_A_WHOLE = 6  # fewer families than these say nothing of a machine altogether


class Family(msgspec.Struct, frozen=True):
    """Metrics measured alike at several sizes, in both results.

    Args:
        name: their ids, with a star for the size.
        unit: of the metrics.
        change: the median of other/one.
        least, most: the quartiles of other/one.
        members: how many there are in both.
        beyond: whether it differs beyond noise.
    """

    name: str
    unit: str
    change: float
    lower_quartile: float
    upper_quartile: float
    members: int
    significant: bool


class Compared(msgspec.Struct, frozen=True):
    """What two results have in common, and what not.

    Args:
        whole: the change of all times together; `whole_beyond` whether that is more than noise.
        families: of measured metrics.
        counts: ids of what was counted and differs.
        missing: how many metrics only one of them has, or has on that device, by topic.
        machines: what differs of the machines, or makes a run of little worth, a line each.
        differs: whether there is any difference beyond noise.
    """

    whole: float
    whole_beyond: bool
    families: list[Family]
    counts: list[str]
    missing: dict[str, int]
    machines: list[str]
    differs: bool


def compare(first: Result, second: Result) -> Compared:
    """Put two results side by side.

    Raises:
        click.UsageError: they have nothing in common, which is not to be the same.
    """
    first_metrics, second_metrics = first.metrics(), second.metrics()
    common = [
        (first_metrics[name], second_metrics[name])
        for name in first_metrics
        if name in second_metrics and first_metrics[name].device == second_metrics[name].device
    ]
    if not common:
        raise click.UsageError("the two have no metric in common: there is nothing to compare")
    whole = _whole(common)
    whole_beyond = abs(math.log(whole)) > math.log1p(WHOLE)
    families = [
        _family(name, pairs, _of_whole(pairs[0][0].unit, whole))
        for name, pairs in _by_family(common).items()
    ]
    counts = [
        f"{a.id}: {format_metric(a)}, {format_metric(b)}"
        for a, b in common
        if a.how == "counted" and a.unit in ("count", "B") and a.value != b.value
    ]
    both = {first.id for first, _ in common}
    missing = Counter(
        parse(name).topic
        for name in first_metrics.keys() | second_metrics.keys()
        if name not in both
    )
    return Compared(
        whole=whole,
        whole_beyond=whole_beyond,
        families=families,
        counts=counts,
        missing=dict(missing),
        machines=_machines(first, second),
        differs=whole_beyond or bool(counts) or any(family.significant for family in families),
    )


def _by_family(common: Iterable[tuple[Metric, Metric]]) -> dict[str, list[tuple[Metric, Metric]]]:
    families: dict[str, list[tuple[Metric, Metric]]] = {}
    for first, second in common:
        if first.name.topic == "timeline":  # one step's picture, no statistic
            continue
        if first.how == "measured" and first.value > 0 and second.value > 0 and first.unit in NOISE:
            families.setdefault(family_of(first.id), []).append((first, second))
    return families


def _whole(common: list[tuple[Metric, Metric]]) -> float:
    """Return the change of a machine's times altogether: the median family's."""
    changes = [
        statistics.median(math.log(second.value / first.value) for first, second in pairs)
        for pairs in _by_family(common).values()
        if pairs[0][0].unit == "s"
    ]
    return math.exp(statistics.median(changes)) if len(changes) >= _FAMILIES_OF_A_WHOLE else 1.0


def _of_whole(unit: str, whole: float) -> float:
    """Return how many times a unit's values are where the machine's times are `whole` times."""
    return {"s": whole, "B/s": 1 / whole}.get(unit, 1.0)


def _family(name: str, pairs: list[tuple[Metric, Metric]], whole: float) -> Family:
    logs = sorted(math.log(second.value / first.value) for first, second in pairs)
    middle = statistics.median(logs)
    relative = [log - math.log(whole) for log in logs]  # beside the machine altogether
    shift = statistics.median(relative)
    agreeing = sum(1 for log in relative if log * shift > 0) / len(relative)
    noise = max(math.log1p(NOISE[pairs[0][0].unit]), ERRORS * _error(logs))
    disjoint = sum(_intervals_disjoint(first, second) for first, second in pairs)
    clear = len(pairs) >= _FEW or disjoint >= len(pairs) / 2
    quarter = len(logs) // 4
    return Family(
        name=name,
        unit=pairs[0][0].unit,
        change=math.exp(middle),
        lower_quartile=math.exp(logs[quarter]),
        upper_quartile=math.exp(logs[-1 - quarter]),
        members=len(logs),
        significant=abs(shift) > noise and agreeing >= AGREE and clear,
    )


def _error(logs: Sequence[float]) -> float:
    """Return the standard error of the median of sorted logarithms, from their quartiles."""
    quarter = len(logs) // 4
    deviation = (logs[-1 - quarter] - logs[quarter]) / 1.35
    return 1.25 * deviation / math.sqrt(len(logs))


def _intervals_disjoint(first: Metric, second: Metric) -> bool:
    """Whether two metrics' spreads don't touch."""
    if None in (first.low, first.high, second.low, second.high):
        return True
    assert first.low is not None and first.high is not None
    assert second.low is not None and second.high is not None
    return first.high < second.low or second.high < first.low


_BUSY = 1.0  # load of a core before a run, above which its times say little


def _machines(first: Result, second: Result) -> list[str]:
    lines = [
        f"another {name}: {first.provenance.get(name, '–')}, {second.provenance.get(name, '–')}"
        for name in MACHINE
        if first.provenance.get(name) != second.provenance.get(name)
    ]
    for which, result in (("first", first), ("second", second)):
        load, cores = result.provenance.get("load-before"), result.provenance.get("cores")
        if isinstance(load, float) and isinstance(cores, int) and load > _BUSY * cores:
            lines.append(f"the {which} began on a busy machine: load {load:g} on {cores} cores")
        for name, section in result.sections.items():
            if section.status == "partial":
                lines.append(f"the {which}, {name}: broke off: {section.note}")
            if section.load and (section.load.spoiled or section.load.cut_short):
                lines.append(f"the {which}, {name}: {describe(section.load).en}")
    return lines


def show(compared: Compared, first: str, second: str) -> None:
    """Print a comparison: what differs first, then the rest in short."""
    console = terminal()
    for line in compared.machines:
        console.print(f"[yellow]{line}[/]")
    than = " than the rest" if compared.whole != 1 else ""
    rows = [
        (
            family.name,
            str(family.members),
            f"{family.change:.2f}×",
            f"[dim]{family.lower_quartile:.2f} – {family.upper_quartile:.2f}[/]",
            f"[bold red]{format_change(family, compared.whole)}{than}[/]"
            if family.significant
            else "",
        )
        for family in sorted(compared.families, key=lambda f: (not f.significant, f.name))
    ]
    tabulate(("measured alike", "of", f"{second} / {first}", "quartiles", ""), "<>>><", rows)
    for line in compared.counts:
        console.print(f"[bold red]counted otherwise[/]  {line}")
    for name, number in compared.missing.items():
        console.print(f"[dim]in one of them only: {number} of {name}.*[/]")
    said = f"all times together: {compared.whole:.2f}×"
    console.print(f"[bold red]{said}: beyond noise[/]" if compared.whole_beyond else said)
    significant = sum(family.significant for family in compared.families)
    console.print(
        f"[bold]{significant} of {len(compared.families)} families differ beyond noise[/]"
        if compared.differs
        else "[bold green]the same within noise[/]"
    )


def format_change(family: Family, whole: float) -> str:
    """Say in words what a family's change is beside the machine's: "20 % slower"."""
    change = family.change / _of_whole(family.unit, whole)
    more, less = ("slower", "faster") if family.unit == "s" else ("more", "less")
    return f"{abs(change - 1) * 100:.0f} % {more if change > 1 else less}"
