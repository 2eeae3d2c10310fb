"""A counted metric: no clock, no spread."""

from typing import Any

from costlab.record.names import Name
from costlab.record.result import How, Metric
from costlab.sections.timed import derived


def counted(
    name: str, value: float, unit: str = "count", how: How = "counted", **detail: Any
) -> Metric:
    """Return the metric `count.NAME`."""
    return derived(Name("count", of=name), float(value), unit, how, **detail)
