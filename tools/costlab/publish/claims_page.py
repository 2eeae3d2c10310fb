"""CLAIMS.md and CLAIMS.es.md: every claim with its verdict, its evidence and what is true instead.

Values link to their rows in the results page and citations stand in the workbook's syntax, so
`shardbook check` proves the page like any other.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from costlab.judge.claims_file import Case, Claim, VerdictWord, load
from costlab.judge.judge import (
    HOWS,
    MEANINGS,
    Judged,
    Outcome,
    evidence_kinds,
    examine,
    judge,
    machine,
    target,
)
from costlab.publish import page, results_page
from costlab.record import quantity
from costlab.record.names import parse
from costlab.record.quantity import attribute
from costlab.record.result import Metric, Result
from costlab.record.result import load as load_result
from costlab.record.words import say, texts

STEM = "CLAIMS"
CLAIMS = "claims.toml"
MARKS = {True: "✓", False: "✗", None: "·"}
SIGNS = {"==": "", "!=": "≠ ", "<=": "≤ ", ">=": "≥ ", "<": "< ", ">": "> "}

VERDICTS = texts("verdicts")
TITLES = texts("columns")
COLUMNS = ("no", "claim", "verdict", "how", "evidence", "true")
TALLY = ("verdict", "claims")
WAYS = ("how", "which-means", "claims")


def write(lab: Path) -> list[Path]:
    """Write the page in every language into the lab's folder, from its claims and its reference.

    Raises:
        ClaimsError: the claims can't be read.
        ResultError: nor the reference.
    """
    claims = load(lab / CLAIMS)
    result = load_result(lab / results_page.REFERENCE)
    return page.write(lab, STEM, lambda language: text(claims, result, lab, language))


def text(claims: tuple[Claim, ...], result: Result, lab: Path, language: str) -> str:
    """Return the page."""
    metrics = result.metrics()
    verdicts = {claim.id: claim.verdict for claim in judge(claims, metrics, result.provenance)}
    devices = {metric.device for metric in metrics.values() if metric.device}
    rows = [_row(claim, verdicts[claim.id], metrics, language) for claim in claims]
    return page.rendered(
        "claims", lab, [CLAIMS, results_page.REFERENCE], language,
        results=page.name(results_page.STEM, language),
        machine=machine(result.provenance, devices, texts("facts")["cores"].of(language)),
        tally=page.folded(say("claims.by-verdict", language), _tally(claims, verdicts, language)),
        ways=page.folded(say("claims.by-way", language), _ways(claims, metrics, language)),
        claims=page.table(_titles(COLUMNS, language), "><<<<<", rows),
    )  # fmt: skip


def _titles(names: tuple[str, ...], language: str) -> list[str]:
    return [TITLES[name].of(language) for name in names]


def _tally(claims: tuple[Claim, ...], verdicts: Mapping[str, VerdictWord], language: str) -> str:
    """Return how many claims came to each verdict, each with a link to its row."""
    rows = []
    for word in get_args(VerdictWord):
        numbers = [claim.number for claim in claims if verdicts[claim.id] == word]
        if numbers:
            rows.append((f"**{VERDICTS[word].of(language)}** ({len(numbers)})", _links(numbers)))
    return page.table(_titles(TALLY, language), "<<", rows)


def _ways(claims: tuple[Claim, ...], metrics: Mapping[str, Metric], language: str) -> str:
    """Return what each way to a verdict means, and which claims came by it."""
    rows = []
    for way, name in HOWS.items():
        numbers = [claim.number for claim in claims if way in evidence_kinds(claim, metrics)]
        if numbers:
            rows.append((f"*{name.of(language)}* ({len(numbers)})", MEANINGS[way].of(language),
                         _links(numbers)))  # fmt: skip
    return page.table(_titles(WAYS, language), "<<<", rows)


def _links(numbers: list[int]) -> str:
    return ", ".join(f"[{number}](#claim-{number})" for number in numbers)


def _row(
    claim: Claim, verdict: VerdictWord, metrics: Mapping[str, Metric], language: str
) -> list[str]:
    true = claim.because if verdict == "holds" else claim.instead or claim.because
    cases = [
        judged
        for judged in examine(claim, metrics)
        if not (judged.missing and judged.case.optional)
    ]
    evidence = [line for case in claim.case for line in _lines(case, cases, language)]
    if claim.verdict and claim.because and true is not claim.because:
        evidence.append(claim.because.of(language))
    evidence += [
        f"{' '.join(f'`{name}`' for name in cite.names)} `{cite.lines}`" for cite in claim.cite
    ]
    seen = [f"*{name}* {_seen(metrics[name], language)}" for name in claim.see if name in metrics]
    if seen:
        evidence.append(f"{say('claims.see', language)} {', '.join(seen)}")
    kind = verdict.replace(" ", "-")
    links = (
        f' · <span class="asked">{say("claims.asked", language)} {claim.lab}</span>'
        if claim.lab
        else ""
    )
    return [
        f'<a id="claim-{claim.number}"></a>{claim.number}',
        f"{claim.words.of(language)}<br>*{claim.where.of(language)}*{links}",
        f'<span class="verdict {kind}">**{VERDICTS[verdict].of(language)}**</span>',
        ", ".join(f"*{HOWS[way].of(language)}*" for way in evidence_kinds(claim, metrics)) or "–",
        "<br>".join(evidence),
        true.of(language) if true else "",
    ]


def _lines(case: Case, judged: list[Judged], language: str) -> list[str]:
    """Return a case's evidence: a line, or of many metrics a line for each way it came out."""
    of_case = [result for result in judged if result.case is case]
    if not case.each or all(result.missing for result in of_case):
        return [_line(result, language) for result in of_case]
    lines = []
    for passed, mark in MARKS.items():
        alike = [result.outcomes[0] for result in of_case if result.passed is passed]
        named = [
            f"{parse(outcome.test.metric).remaining_fields(case.each)} "
            f"{_format_found(outcome, language)}"
            + (f", {_claimed(outcome, language)}" if outcome.reference else "")
            for outcome in alike
        ]
        if named:
            one_for_all = "" if alike[0].reference else f"; {_claimed(alike[0], language)}"
            lines.append(f"{mark} {_situation(case, language)}{', '.join(named)}{one_for_all}")
    return lines


def _line(judged: Judged, language: str) -> str:
    outcomes = (
        f"{_format_found(outcome, language)}, {_claimed(outcome, language)}"
        if outcome.metric
        else f"`{outcome.missing}` –"
        for outcome in judged.outcomes
    )
    each = "; ".join(dict.fromkeys(outcomes))
    return f"{MARKS[judged.passed]} {_situation(judged.case, language)}{each}"


def _situation(case: Case, language: str) -> str:
    return f"{case.words.of(language)}: " if case.words else ""


def _format_found(outcome: Outcome, language: str) -> str:
    """Return what was found, linked to its row."""
    metric, field = outcome.metric, outcome.test.field
    if metric is None:
        return "–"
    return _link(metric, language) if field == "value" else str(metric.detail.get(field, "–"))


def _claimed(outcome: Outcome, language: str) -> str:
    """Return what the claim would have it be."""
    reference = _link(outcome.reference, language) if outcome.reference else target(outcome)
    meaning = f" ({outcome.test.definition.of(language)})" if outcome.test.definition else ""
    return f"{say('claims.claimed', language)} {SIGNS[outcome.test.op]}{reference}{meaning}"


def _seen(metric: Metric, language: str) -> str:
    """Return a metric worth reading beside a claim, and whose it is: the claim isn't about that."""
    owner = str(attribute(metric))
    return f"{_link(metric, language)} ({owner})" if owner else _link(metric, language)


def _link(metric: Metric, language: str) -> str:
    results = page.name(results_page.STEM, language)
    return f"[{quantity.format_metric(metric)}]({results}#{page.row_of(metric.id)})"
