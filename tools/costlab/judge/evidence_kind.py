"""How a verdict came about: by a clock, by a count, by asking the installed source, or by reading.

Generated from the claims file and the result, so that nobody has to remember to say "read".
"""

from collections.abc import Mapping

from costlab.judge.claims import Claim
from costlab.judge.verdict import examine
from costlab.record.result import Metric
from costlab.record.words import texts

HOWS = texts("ways")
MEANINGS = texts("meanings")


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
