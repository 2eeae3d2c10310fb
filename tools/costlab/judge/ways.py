"""How a verdict came about: by a clock, by a count, by asking the installed source, or by reading.

Generated from the claims file and the result, so that nobody has to remember to say "read".
"""

from __future__ import annotations

from collections.abc import Mapping

from costlab.judge.claims import Claim
from costlab.judge.verdict import examine
from costlab.record.result import Metric
from costlab.record.words import Words

HOWS = {
    "measured": Words("measured", "medido"),
    "counted": Words("counted", "contado"),
    "source": Words("computed from source", "calculado de la fuente"),
    "read": Words("read", "leído"),
}
MEANINGS = {
    "measured": Words(
        "computed from what a clock or a counter of the machine said",
        "calculado de lo que dijo un reloj o un contador de la máquina",
    ),
    "counted": Words(
        "computed from what real runs asked for, or from arithmetic",
        "calculado de lo que pidieron ejecuciones reales, o por aritmética",
    ),
    "source": Words(
        "computed by asking the installed PyTorch and Megatron: a default, a name, a branch",
        "calculado preguntando al PyTorch y al Megatron instalados: un valor por defecto, un "
        "nombre, una rama",
    ),
    "read": Words(
        "not computed: somebody read the cited lines and wrote the verdict down",
        "no calculado: alguien leyó las líneas citadas y escribió el veredicto",
    ),
}


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
