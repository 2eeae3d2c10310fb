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


def ways(claim: Claim, metrics: Mapping[str, Metric]) -> list[str]:
    """Return how a claim's verdict came about: whoever has no case is read."""
    if not claim.case:
        return ["read"]
    asked = [
        metric
        for judged in examine(claim, metrics)
        for outcome in judged.outcomes
        for metric in (outcome.metric, outcome.other)
        if metric
    ]
    found = {_way(metric) for metric in asked}
    return [way for way in HOWS if way in found]


def _way(metric: Metric) -> str:
    if metric.name.of.partition(".")[0].endswith("-source"):
        return "source"
    counted = metric.name.topic == "count" and metric.how != "measured"
    return "counted" if counted else "measured"
