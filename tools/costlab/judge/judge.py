"""Verdicts: each claim's tests against what was measured, spread included; and how they are shown.

A comparison passes where it would pass at every end of the spread, fails where it would fail at
every end, and is undecided in between. A case holds when all its comparisons pass. A claim *holds*
when all its cases do, and is *refuted* when none does. If some do and some don't, it *holds only
if* an ordinary setting is so, or it is *too strong* as it is worded: the claims file says which.

How a verdict came about, by a clock, by a count, by asking the installed source or by reading, is
said by the claims file and the result, so that nobody has to remember to say "read".
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from costlab.judge import claims_file
from costlab.judge.claims_file import Case, Claim, Comparison, Mixed, VerdictWord
from costlab.record import options
from costlab.record.names import natural
from costlab.record.quantity import format_metric, format_value
from costlab.record.result import Metric, Result, load
from costlab.record.words import tabulate, texts

HOWS = texts("ways")
MEANINGS = texts("meanings")
Provenance = Mapping[str, Any]
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

# As a driver's topology matrix says it: NV with the number of links.
_NVLINK = re.compile(r"\bNV\d+\b|nvlink", re.IGNORECASE)


class Verdict(msgspec.Struct, frozen=True):
    """What became of a claim, and on what evidence, in a line."""

    number: int
    id: str
    verdict: VerdictWord
    evidence: str


class Outcome(msgspec.Struct, frozen=True):
    """A comparison made: `passed` is None where it is undecided or a metric is `missing`."""

    test: Comparison
    metric: Metric | None
    reference: Metric | None
    passed: bool | None
    missing: str = ""


class Judged(msgspec.Struct, frozen=True):
    """A case judged: `passed` is None where nothing decides it."""

    case: Case
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool | None:
        """Whether all comparisons pass; one that fails decides, whatever the others may be."""
        answers = [outcome.passed for outcome in self.outcomes]
        if False in answers:
            return False
        return None if None in answers else True

    @property
    def missing(self) -> bool:
        """Whether it is undecided for want of a metric."""
        return self.passed is None and any(outcome.missing for outcome in self.outcomes)


def judge(
    claims: Iterable[Claim], metrics: Mapping[str, Metric], provenance: Provenance
) -> list[Verdict]:
    """Judge every claim on one run.

    Args:
        claims: in the order of the answer.
        metrics: the run's, by id.
        provenance: the run's; says what the machine has.
    """
    return [_verdict(claim, metrics, provenance) for claim in claims]


def _verdict(claim: Claim, metrics: Mapping[str, Metric], provenance: Provenance) -> Verdict:
    cited = "; ".join(cite.lines for cite in claim.cite)
    if claim.verdict:
        return Verdict(claim.number, claim.id, claim.verdict, f"read in {cited}")
    cases = examine(claim, metrics)
    lacking = [need for need in claim.needs if need not in offers(provenance)]
    word: VerdictWord = "not measurable here" if lacking else of_cases(cases, mixed=claim.mixed)
    reasons = [f"needs {need}" for need in lacking] or [_format_judged(case) for case in cases]
    if claim.machine_bound and not lacking:
        reasons.append(f"on {machine(provenance, _devices(cases))}")
    return Verdict(claim.number, claim.id, word, "; ".join([*reasons, *([cited] if cited else [])]))


def of_cases(cases: Iterable[Judged], *, mixed: Mixed = "holds only if") -> VerdictWord:
    """Return the verdict that some judged cases come to; `mixed` if they disagree."""
    cases = [judged for judged in cases if judged.passed is not None or not judged.case.optional]
    answers = {judged.passed for judged in cases if judged.passed is not None}
    if answers == {True, False}:
        return mixed
    if not answers or any(judged.missing for judged in cases):
        return "not measurable here"
    return "holds" if True in answers else "refuted"


def examine(claim: Claim, metrics: Mapping[str, Metric]) -> list[Judged]:
    """Judge a claim's cases, one for each metric that a case is tried on."""
    judged = []
    for case in claim.case:
        for name in _each(case, metrics):
            tests = (
                msgspec.structs.replace(test, metric=test.metric or name) for test in case.tests
            )
            judged.append(Judged(case, tuple(_compared(test, metrics) for test in tests)))
    return judged


def _each(case: Case, metrics: Mapping[str, Metric]) -> list[str]:
    """Return the ids that a case is tried on, in natural order; where there are none, what was."""
    names = [name for name, metric in metrics.items() if case.each and metric.name.fits(case.each)]
    return sorted(names, key=natural) or [" ".join(str(value) for value in case.each.values())]


def _compared(test: Comparison, metrics: Mapping[str, Metric]) -> Outcome:
    metric, reference = metrics.get(test.metric), metrics.get(test.than) if test.than else None
    wanted = [test.metric, *([test.than] if test.than else [])]
    missing = next((name for name in wanted if name not in metrics), "")
    if missing or metric is None:
        return Outcome(test, metric, reference, None, missing)
    ends = _ends(metric, test)
    against = _ends(reference, test) if reference else (test.value or 0.0,)
    if not ends or not against:
        return Outcome(test, metric, reference, None, f"{test.metric}: {test.field}")
    answers = {_holds(test, first, two) for first in ends for two in against}
    return Outcome(test, metric, reference, answers.pop() if len(answers) == 1 else None)


def _ends(metric: Metric, test: Comparison) -> tuple[float, ...]:
    """Return what a test must hold for: the value, and either end of its spread."""
    if test.field != "value":
        value = metric.detail.get(test.field)
        return (float(value),) if isinstance(value, int | float) else ()
    return tuple(end for end in (metric.value, metric.low, metric.high) if end is not None)


def _holds(test: Comparison, first: float, second: float) -> bool:
    if test.op in _ORDERS:
        return _ORDERS[test.op](first, second)
    tolerated = abs(first - second) <= test.tolerance * abs(second)
    return tolerated == (test.op == "==")


def _format_judged(judged: Judged) -> str:
    outcomes = ", ".join(_format_outcome(outcome) for outcome in judged.outcomes)
    answer = {True: "yes", False: "no", None: "undecided"}[judged.passed]
    where = f"{judged.case.words.en}: " if judged.case.words else ""
    return f"{where}{outcomes}: {answer}"


def _format_outcome(outcome: Outcome) -> str:
    test = outcome.test
    if outcome.missing or outcome.metric is None:
        return f"{outcome.missing} was not measured"
    value = (
        format_metric(outcome.metric)
        if test.field == "value"
        else outcome.metric.detail[test.field]
    )
    against = (
        f"{test.than} ({format_metric(outcome.reference)})"
        if outcome.reference
        else target(outcome)
    )
    return f"{test.metric} = {value} {test.op} {against}"


def target(outcome: Outcome) -> str:
    """Return the value that a test compares with, as its metric is written."""
    value = outcome.test.value or 0.0
    if outcome.metric is None or outcome.test.field != "value":
        return f"{value:g}"
    return format_value(value, outcome.metric.unit)


def offers(provenance: Provenance) -> set[str]:
    """Return which of the things that claims may need the run's machine has."""
    count = len(provenance.get("gpus", []))
    nvlink = any(map(_NVLINK.search, provenance.get("links", [])))
    offered = {"gpu": count >= 1, "gpus": count >= 2, "nvlink": nvlink}
    return {name for name, offered_here in offered.items() if offered_here}


def _devices(cases: Iterable[Judged]) -> set[str]:
    """Return the devices of everything that the cases compare."""
    compared = [outcome for case in cases for outcome in case.outcomes]
    metrics = [
        metric for outcome in compared for metric in (outcome.metric, outcome.reference) if metric
    ]
    return {metric.device for metric in metrics if metric.device}


def machine(provenance: Provenance, devices: Iterable[str] = (), cores: str = "cores") -> str:
    """Return the names of the devices that numbers are from: GPUs, processor and cores, or both.

    Args:
        provenance: of the run.
        devices: "cpu", "cuda"; where none is said, the run's GPUs if it has any.
        cores: what they are called.
    """
    gpus = provenance.get("gpus", [])
    name = provenance.get("processor", "an unnamed processor")
    names = {
        "cpu": f"{name}, {provenance.get('cores', '?')} {cores}",
        "cuda": f"{len(gpus)} × {gpus[0]}" if gpus else "GPUs unnamed",
    }
    wanted = set(devices) or {"cuda" if gpus else "cpu"}
    return "; ".join(names.get(device, device) for device in sorted(wanted))


def evidence_kinds(claim: Claim, metrics: Mapping[str, Metric]) -> list[str]:
    """Return how a claim's verdict came about: whoever has no case is read."""
    if not claim.case:
        return ["read"]
    compared = [
        metric
        for judged in examine(claim, metrics)
        for outcome in judged.outcomes
        for metric in (outcome.metric, outcome.reference)
        if metric
    ]
    kinds = {_evidence_kind(metric) for metric in compared}
    return [way for way in HOWS if way in kinds]


def _evidence_kind(metric: Metric) -> str:
    if metric.name.of.partition(".")[0].endswith("-source"):
        return "source"
    counted = metric.name.topic == "count" and metric.how != "measured"
    return "counted" if counted else "measured"


_STYLES = {
    "holds": "green",
    "holds only if": "yellow",
    "too strong": "dark_orange",
    "refuted": "red",
    "stale": "magenta",
    "not measurable here": "dim",
}


def verdicts(result: Result) -> list[Verdict]:
    """Return a verdict for each claim of the lab."""
    return judge(claims_file.load(options.LAB / "claims.toml"), result.metrics(), result.provenance)


def differences_from_reference(result: Result) -> list[str]:
    """Return a line for each claim that no machine may bear on and that is judged otherwise here.

    The measure is the committed reference; where there is none, nothing differs. Both are judged on
    what both counted: without megatron-core, say, its cases decide nothing on either side.
    """
    if not options.REFERENCE.exists():
        return []
    listed = claims_file.load(options.LAB / "claims.toml")
    reference = load(options.REFERENCE)
    shared = result.metrics().keys() & reference.metrics().keys()
    here, reference_verdicts = (
        judge(listed, {name: judged.metrics()[name] for name in shared}, judged.provenance)
        for judged in (result, reference)
    )
    return [
        f"claim {verdict.number} ({verdict.id}): {verdict.verdict} here, "
        f"{reference_verdict.verdict} in the reference: {verdict.evidence}"
        for claim, verdict, reference_verdict in zip(listed, here, reference_verdicts, strict=True)
        if not claim.machine_bound
        and "not measurable here" not in (verdict.verdict, reference_verdict.verdict)
        and verdict.verdict != reference_verdict.verdict
    ]


def show(judged: list[Verdict]) -> None:
    """Print the verdicts as a table."""
    rows = [
        (
            str(verdict.number),
            verdict.id,
            f"[{_STYLES[verdict.verdict]}]{verdict.verdict}[/]",
            verdict.evidence,
        )
        for verdict in judged
    ]
    tabulate(("", "claim", "verdict", "evidence"), "><<<", rows)
