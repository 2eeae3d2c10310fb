"""How hypothesis runs here: the same examples every time, and no clock, for machines are busy."""

from hypothesis import HealthCheck, settings

steady = settings(
    deadline=None, derandomize=True, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)
