"""The claims, judged on a result and shown; and what on this machine is judged otherwise."""

from costlab.judge import claims
from costlab.judge.verdict import Verdict, judge
from costlab.record import options
from costlab.record.result import Result, load
from costlab.record.terminal import tabulate

_STYLES = {
    "holds": "green",
    "holds only if": "yellow",
    "refuted": "red",
    "stale": "magenta",
    "not measurable here": "dim",
}


def verdicts(result: Result) -> list[Verdict]:
    """Return a verdict for each claim of the lab."""
    return judge(claims.load(options.LAB / "claims.toml"), result.metrics(), result.provenance)


def differing(result: Result) -> list[str]:
    """Return a line for each claim that no machine may bear on and that is judged otherwise here.

    The measure is the committed reference; where there is none, nothing differs. Both are judged on
    what both counted: without megatron-core, say, its cases decide nothing on either side.
    """
    if not options.REFERENCE.exists():
        return []
    listed = claims.load(options.LAB / "claims.toml")
    reference = load(options.REFERENCE)
    shared = result.metrics().keys() & reference.metrics().keys()
    here, there = (
        judge(listed, {name: found.metrics()[name] for name in shared}, found.provenance)
        for found in (result, reference)
    )
    return [
        f"claim {mine.number} ({mine.id}): {mine.verdict} here, "
        f"{theirs.verdict} in the reference: {mine.evidence}"
        for claim, mine, theirs in zip(listed, here, there, strict=True)
        if not claim.machine_bound
        and "not measurable here" not in (mine.verdict, theirs.verdict)
        and mine.verdict != theirs.verdict
    ]


def show(found: list[Verdict]) -> None:
    """Print the verdicts as a table."""
    rows = [
        (str(one.number), one.id, f"[{_STYLES[one.verdict]}]{one.verdict}[/]", one.evidence)
        for one in found
    ]
    tabulate(("", "claim", "verdict", "evidence"), "><<<", rows)
