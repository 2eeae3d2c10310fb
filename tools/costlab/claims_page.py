"""CLAIMS.md and CLAIMS.es.md: every claim with its verdict, its evidence and what is true instead.

Values link to their rows in the results page and citations stand in the workbook's syntax, so
`shardbook check` proves the page like any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from costlab import page, quantity, results_page
from costlab.claims import Case, Claim, VerdictWord, Words, load
from costlab.result import Metric, Result
from costlab.result import load as load_result
from costlab.verdict import Judged, Outcome, examine, judge, machine, target
from costlab.whose import whose

STEM = "CLAIMS"
CLAIMS = "claims.toml"
MARKS = {True: "✓", False: "✗", None: "·"}
SIGNS = {"==": "", "!=": "≠ ", "<=": "≤ ", ">=": "≥ ", "<": "< ", ">": "> "}

TITLE = Words("Claims, judged", "Afirmaciones, juzgadas")
INTRO = Words(
    "What is said about sharded training, held against the source at the pin and against "
    "[measurement]({results}). What is counted comes out alike on every machine; where a verdict "
    "stands on times, they are those of {machine}. ✓ and ✗ say whether a case of the claim came "
    "out as it says. Judge them on yours: `tools/bench claims`.",
    "Lo que se dice del entrenamiento fragmentado, frente a la fuente en su pin y frente a "
    "[la medición]({results}). Lo contado sale igual en toda máquina; donde un veredicto depende "
    "de tiempos, son los de {machine}. ✓ y ✗ dicen si un caso de la afirmación salió como ella "
    "dice. Júzgalas en la tuya: `tools/bench claims`.",
)
VERDICTS: dict[VerdictWord, Words] = {
    "holds": Words("holds", "se cumple"),
    "holds only if": Words("holds only if …", "se cumple solo si …"),
    "refuted": Words("refuted", "refutada"),
    "stale": Words("stale", "caducada"),
    "not measurable here": Words("not measurable here", "no medible aquí"),
}
COLUMNS = (
    Words("no.", "n.º"),
    Words("claim", "afirmación"),
    Words("verdict", "veredicto"),
    Words("evidence", "pruebas"),
    Words("what is true", "lo cierto"),
)
TALLY = (Words("verdict", "veredicto"), Words("claims", "afirmaciones"))
SEE = Words("see", "véase")
CLAIMED = Words("claimed", "se afirma")


def write(lab: Path) -> list[Path]:
    """Write the page in every language into the lab's folder, from its claims and its reference.

    Raises:
        ClaimsError: the claims can't be read.
        ResultError: nor the reference.
    """
    claims = load(lab / CLAIMS)
    result = load_result(lab / results_page.REFERENCE)
    paths = []
    for language in page.LANGUAGES:
        path = lab / page.name(STEM, language)
        path.write_text(text(claims, result, lab, language), "utf-8")
        paths.append(path)
    return paths


def text(claims: tuple[Claim, ...], result: Result, lab: Path, language: str) -> str:
    """Return the page."""
    metrics = result.metrics()
    words = {one.id: one.verdict for one in judge(claims, metrics, result.provenance)}
    lines = page.head(TITLE.of(language), lab, [CLAIMS, results_page.REFERENCE])
    results = page.name(results_page.STEM, language)
    devices = {metric.device for metric in metrics.values() if metric.device}
    intro = INTRO.of(language).format(results=results, machine=machine(result.provenance, devices))
    lines += [intro, "", *_tally(claims, words, language)]
    rows = [_row(claim, words[claim.id], metrics, language) for claim in claims]
    lines += page.table([column.of(language) for column in COLUMNS], "><<<<", rows)
    return page.sealed(lines)


def _tally(claims: tuple[Claim, ...], words: Mapping[str, VerdictWord], language: str) -> list[str]:
    """Return how many claims came to each verdict, each with a link to its row."""
    rows = []
    for word in get_args(VerdictWord):
        found = [claim.number for claim in claims if words[claim.id] == word]
        if found:
            links = ", ".join(f"[{number}](#claim-{number})" for number in found)
            rows.append((f"**{VERDICTS[word].of(language)}** ({len(found)})", links))
    return page.table([column.of(language) for column in TALLY], "<<", rows)


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
    seen = [_seen(metrics[name], language) for name in claim.see if name in metrics]
    if seen:
        evidence.append(f"{SEE.of(language)} {', '.join(seen)}")
    return [
        f'<a id="claim-{claim.number}"></a>{claim.number}',
        f"{claim.words.of(language)}<br>*{claim.where.of(language)}*",
        f"**{VERDICTS[verdict].of(language)}**",
        "<br>".join(evidence),
        true.of(language) if true else "",
    ]


def _lines(case: Case, judged: list[Judged], language: str) -> list[str]:
    """Return a case's evidence: a line, or where it has a `*` a line for each way it came out."""
    mine = [one for one in judged if one.case is case]
    if "*" not in case.tests[0].metric or all(one.missing for one in mine):
        return [_line(one, language) for one in mine]
    lines = []
    for passed, mark in MARKS.items():
        alike = [one.outcomes[0] for one in mine if one.passed is passed]
        named = [
            f"{_which(case.tests[0].metric, one.test.metric)} {_found(one, language)}"
            for one in alike
        ]
        if named:
            claimed = _claimed(alike[0], language)
            words = f"{case.words.of(language)}: " if case.words else ""
            lines.append(f"{mark} {words}{', '.join(named)}; {claimed}")
    return lines


def _line(judged: Judged, language: str) -> str:
    said = "; ".join(
        f"{_found(one, language)}, {_claimed(one, language)}"
        if one.metric
        else f"`{one.missing}` –"
        for one in judged.outcomes
    )
    words = judged.case.words
    return f"{MARKS[judged.passed]} {words.of(language) + ': ' if words else ''}{said}"


def _which(pattern: str, metric: str) -> str:
    """Return what a pattern's `*` stand for in a metric's id."""
    found = re.fullmatch("(.*)".join(map(re.escape, pattern.split("*"))), metric)
    return " ".join(found.groups()) if found else ""


def _found(outcome: Outcome, language: str) -> str:
    """Return what was found, linked to its row."""
    metric, field = outcome.metric, outcome.test.field
    if metric is None:
        return "–"
    return _link(metric, language) if field == "value" else str(metric.detail.get(field, "–"))


def _claimed(outcome: Outcome, language: str) -> str:
    """Return what the claim would have it be."""
    other = _link(outcome.other, language) if outcome.other else target(outcome)
    return f"{CLAIMED.of(language)} {SIGNS[outcome.test.op]}{other}"


def _seen(metric: Metric, language: str) -> str:
    """Return a metric worth reading beside a claim, and whose it is: the claim isn't about that."""
    owner = str(whose(metric))
    return f"{_link(metric, language)} ({owner})" if owner else _link(metric, language)


def _link(metric: Metric, language: str) -> str:
    results = page.name(results_page.STEM, language)
    return f"[{quantity.shown(metric)}]({results}#{page.row_of(metric.id)})"
