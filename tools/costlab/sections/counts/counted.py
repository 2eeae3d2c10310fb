"""A counted metric: no clock, no spread."""

from costlab.record.names import Name
from costlab.record.result import How, Metric
from costlab.sections.timed import told


def counted(
    name: str, value: float, unit: str = "count", how: How = "counted", **detail: str | float | int
) -> Metric:
    """Return the metric `count.NAME`."""
    return told(Name("count", of=name), float(value), unit, how, **detail)
