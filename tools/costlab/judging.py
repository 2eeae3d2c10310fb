"""The claims, judged on a result and shown; and what on this machine is judged otherwise."""

from __future__ import annotations

from rich.table import Table

from costlab import asked, claims
from costlab.result import Result, load
from costlab.terminal import console as terminal
from costlab.verdict import Verdict, judge

_STYLES = {
    "holds": "green",
    "holds only if": "yellow",
    "refuted": "red",
    "stale": "magenta",
    "not measurable here": "dim",
}


def verdicts(result: Result) -> list[Verdict]:
    """Return a verdict for each claim of the lab."""
    return judge(claims.load(asked.LAB / "claims.toml"), result.metrics(), result.provenance)


def differing(found: list[Verdict]) -> list[str]:
    """Return a line for each claim that no machine may bear on and that is judged otherwise here.

    The measure is the committed reference; where there is none, nothing differs.
    """
    if not asked.REFERENCE.exists():
        return []
    bound = {c.number for c in claims.load(asked.LAB / "claims.toml") if c.machine_bound}
    there = {verdict.number: verdict for verdict in verdicts(load(asked.REFERENCE))}
    return [
        f"claim {one.number} ({one.id}): {one.verdict} here, "
        f"{there[one.number].verdict} in the reference: {one.evidence}"
        for one in found
        if one.number not in bound
        and one.number in there
        and "not measurable here" not in (one.verdict, there[one.number].verdict)
        and one.verdict != there[one.number].verdict
    ]


def show(found: list[Verdict]) -> None:
    """Print the verdicts as a table."""
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for column in ("", "claim", "verdict", "evidence"):
        table.add_column(column, justify="right" if not column else "left")
    for one in found:
        style = _STYLES.get(one.verdict, "")
        table.add_row(str(one.number), one.id, f"[{style}]{one.verdict}[/]", one.evidence)
    terminal().print(table)
