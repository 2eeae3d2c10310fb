"""A counted metric: no clock, no spread."""

from costlab.record.names import Name
from costlab.record.result import How, Metric


def counted(
    name: str, value: float, unit: str = "count", how: How = "counted", **detail: str | float | int
) -> Metric:
    """Return the metric `count.NAME`."""
    return Metric(
        id=Name("count", of=name).id, value=float(value), unit=unit, how=how, detail=detail
    )
