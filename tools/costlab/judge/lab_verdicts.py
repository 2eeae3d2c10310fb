"""The claims, judged on a result and shown; and what on this machine is judged otherwise."""

from costlab.judge import claims_file
from costlab.judge.judge import Verdict, judge
from costlab.record import options
from costlab.record.result import Result, load
from costlab.record.terminal import tabulate

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
