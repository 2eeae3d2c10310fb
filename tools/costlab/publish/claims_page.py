"""CLAIMS.md and CLAIMS.es.md: every claim with its verdict, its evidence and what is true instead.

Values link to their rows in the results page and citations stand in the workbook's syntax, so
`shardbook check` proves the page like any other.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from costlab.judge.claims import Case, Claim, VerdictWord, load
from costlab.judge.verdict import Judged, Outcome, examine, judge, machine, target
from costlab.judge.ways import HOWS, MEANINGS, ways
from costlab.publish import page, results_page
from costlab.record import quantity
from costlab.record.names import parse
from costlab.record.result import Metric, Result
from costlab.record.result import load as load_result
from costlab.record.whose import whose
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
    verdicts = {one.id: one.verdict for one in judge(claims, metrics, result.provenance)}
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
        found = [claim.number for claim in claims if verdicts[claim.id] == word]
        if found:
            rows.append((f"**{VERDICTS[word].of(language)}** ({len(found)})", _links(found)))
    return page.table(_titles(TALLY, language), "<<", rows)


def _ways(claims: tuple[Claim, ...], metrics: Mapping[str, Metric], language: str) -> str:
    """Return what each way to a verdict means, and which claims came by it."""
    rows = []
    for way, name in HOWS.items():
        found = [claim.number for claim in claims if way in ways(claim, metrics)]
        if found:
            rows.append((f"*{name.of(language)}* ({len(found)})", MEANINGS[way].of(language),
                         _links(found)))  # fmt: skip
    return page.table(_titles(WAYS, language), "<<<", rows)


def _links(numbers: list[int]) -> str:
    return ", ".join(f"[{number}](#claim-{number})" for number in numbers)


def _row(
    claim: Claim, verdict: VerdictWord, metrics: Mapping[str, Metric], language: str
) -> list[str]:
    true = claim.because if verdict == "holds" else claim.instead or claim.because
    cases = [one for one in examine(claim, metrics) if not (one.missing and one.case.optional)]
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
    asked = (
        f' · <span class="asked">{say("claims.asked", language)} {claim.lab}</span>'
        if claim.lab
        else ""
    )
    return [
        f'<a id="claim-{claim.number}"></a>{claim.number}',
        f"{claim.words.of(language)}<br>*{claim.where.of(language)}*{asked}",
        f'<span class="verdict {kind}">**{VERDICTS[verdict].of(language)}**</span>',
        ", ".join(f"*{HOWS[way].of(language)}*" for way in ways(claim, metrics)) or "–",
        "<br>".join(evidence),
        true.of(language) if true else "",
    ]


def _lines(case: Case, judged: list[Judged], language: str) -> list[str]:
    """Return a case's evidence: a line, or of many metrics a line for each way it came out."""
    mine = [one for one in judged if one.case is case]
    if not case.each or all(one.missing for one in mine):
        return [_line(one, language) for one in mine]
    lines = []
    for passed, mark in MARKS.items():
        alike = [one.outcomes[0] for one in mine if one.passed is passed]
        named = [
            f"{parse(one.test.metric).beside(case.each)} {_found(one, language)}"
            + (f", {_claimed(one, language)}" if one.other else "")
            for one in alike
        ]
        if named:
            one_for_all = "" if alike[0].other else f"; {_claimed(alike[0], language)}"
            lines.append(f"{mark} {_situation(case, language)}{', '.join(named)}{one_for_all}")
    return lines


def _line(judged: Judged, language: str) -> str:
    said = (
        f"{_found(one, language)}, {_claimed(one, language)}"
        if one.metric
        else f"`{one.missing}` –"
        for one in judged.outcomes
    )
    each = "; ".join(dict.fromkeys(said))
    return f"{MARKS[judged.passed]} {_situation(judged.case, language)}{each}"


def _situation(case: Case, language: str) -> str:
    return f"{case.words.of(language)}: " if case.words else ""


def _found(outcome: Outcome, language: str) -> str:
    """Return what was found, linked to its row."""
    metric, field = outcome.metric, outcome.test.field
    if metric is None:
        return "–"
    return _link(metric, language) if field == "value" else str(metric.detail.get(field, "–"))


def _claimed(outcome: Outcome, language: str) -> str:
    """Return what the claim would have it be."""
    other = _link(outcome.other, language) if outcome.other else target(outcome)
    meaning = f" ({outcome.test.definition.of(language)})" if outcome.test.definition else ""
    return f"{say('claims.claimed', language)} {SIGNS[outcome.test.op]}{other}{meaning}"


def _seen(metric: Metric, language: str) -> str:
    """Return a metric worth reading beside a claim, and whose it is: the claim isn't about that."""
    owner = str(whose(metric))
    return f"{_link(metric, language)} ({owner})" if owner else _link(metric, language)


def _link(metric: Metric, language: str) -> str:
    results = page.name(results_page.STEM, language)
    return f"[{quantity.shown(metric)}]({results}#{page.row_of(metric.id)})"
