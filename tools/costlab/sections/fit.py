"""The section "fit": from measured sweeps to what they say, and how far they can be trusted.

For each link, collective and number of ranks that "collectives" has swept, blocking calls:

    fit.{link}.{op}.n{ranks}.pieces           lines that leave-one-out justifies
                            .latency          seconds at no bytes, of the first piece
                            .bandwidth        bytes a second (algbw) of the last piece
                            .residual         median |predicted/measured - 1| where it was fitted
                            .holdout-large    the same of sizes it has not seen, from 1 MiB …
                            .holdout-small    … and below: fitted on every second size
                            .plain-residual   of one line through everything, beside `residual`

Nothing here is measured: every metric is "derived", the same from the same sweeps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from costlab.record.names import Name
from costlab.record.result import Metric
from costlab.record.statistics import median_ci
from costlab.sections.metrics import derived
from costlab.sections.piecewise import LEAST, Curve, interval, one_line, piecewise
from costlab.sections.plan import Plan

LARGE = 1 << 20  # bytes, from which the stricter of the two goals holds
# What gloo's collectives make a network do, where a formula says what an algorithm asks for. Its
# ring passes pieces on 2(n-1) times for an all-reduce, and every message waits for word that it is
# expected, so a step costs two one-way delays where a textbook's costs one. Its reduce-scatter is
# that same ring with most of the result thrown away. tests/costlab/network holds every entry
# against ranks in network namespaces, by their interfaces' counters and over a wire of known delay.
# Of each operation, among n ranks: one-way delays, one after another; the share that a rank sends.
_GLOO: dict[str, Callable[[int], tuple[int, Fraction]]] = {
    "all_reduce": lambda n: (4 * (n - 1), Fraction(2 * (n - 1), n)),
    "reduce_scatter": lambda n: (4 * (n - 1), Fraction(2 * (n - 1), n)),
    "all_gather": lambda n: (2 * (n - 1), Fraction(n - 1, n)),
    "all_to_all": lambda n: (2, Fraction(n - 1, n)),
    "send_recv": lambda n: (2, Fraction(1)),
}


@dataclass
class Sweep:
    """One collective over ascending sizes.

    Args:
        link: gloo, shared-memory, nccl ….
        op: all_reduce ….
        ranks: how many took part.
        sizes: bytes, as nccl-tests counts them.
        seconds: what one call took.
        device: on which it was measured.
    """

    link: str
    op: str
    ranks: int
    sizes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    device: str = ""

    @property
    def name(self) -> str:
        """As in the ids: gloo.all_reduce.n2."""
        return f"{self.link}.{self.op}.n{self.ranks}"

    def metric_name(self, what: str) -> Name:
        """Return the name of what is derived from it."""
        return Name("fit", what, link=self.link, operation=self.op, ranks=self.ranks)

    def curve(self) -> Curve:
        """Fit it."""
        return piecewise(self.sizes, self.seconds)


def sweeps(metrics: Mapping[str, Metric], statistic: str = "") -> dict[str, Sweep]:
    """Find the sweeps of blocking calls among metrics, by `Sweep.name`.

    Args:
        metrics: of the section "collectives", and maybe others.
        statistic: a name in their detail, "median", to take in place of their value.
    """
    points: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
    devices: dict[str, str] = {}
    for metric in metrics.values():
        name = metric.name
        if name.fits({"topic": "collective", "mode": "blocking"}):
            point = (name.size, float(metric.detail.get(statistic, metric.value)))
            points.setdefault((name.link, name.operation, name.ranks), []).append(point)
            devices[name.link] = metric.device
    result = {}
    for (link, op, ranks), pairs in points.items():
        pairs.sort()
        sizes, seconds = [size for size, _ in pairs], [time for _, time in pairs]
        sweep = Sweep(link, op, ranks, sizes, seconds, devices[link])
        result[sweep.name] = sweep
    return result


def unseen(sizes: Sequence[int], seconds: Sequence[float]) -> dict[int, float]:
    """|predicted/measured - 1| of every second size, by size, from a fit on the others.

    The largest size is among those fitted, and of an odd number the smallest too, so that none is
    extrapolated upwards, where an error would grow with the size.
    """
    seen = slice((len(sizes) - 1) % 2, None, 2)
    curve = piecewise(sizes[seen], seconds[seen])
    hidden = slice(len(sizes) % 2, None, 2)
    return {
        size: abs(curve.predict(size) / second - 1)
        for size, second in zip(sizes[hidden], seconds[hidden], strict=True)
    }


def derive(metrics: Mapping[str, Metric]) -> Iterator[Metric]:
    """Yield the metrics of this section from those of "collectives".

    A sweep of fewer than six sizes is passed over: half of it would not hold one piece.
    """
    for _, sweep in sorted(sweeps(metrics).items()):
        if len(sweep.sizes) >= 2 * LEAST:
            yield from (metric.on(sweep.device) for metric in _of(sweep))


def _of(sweep: Sweep) -> Iterator[Metric]:
    curve = sweep.curve()
    yield from _parameters(sweep, curve)
    plain, careless = (one_line(sweep.sizes, sweep.seconds, relative=r) for r in (True, False))
    yield _error(
        sweep.metric_name("residual"), dict(zip(sweep.sizes, _sizes_of(curve), strict=True))
    )
    unweighted = {"unweighted": float(np.median(_sizes_of(careless)))}
    errors = dict(zip(sweep.sizes, _sizes_of(plain), strict=True))
    yield _error(sweep.metric_name("plain-residual"), errors, unweighted)
    hidden = unseen(sweep.sizes, sweep.seconds)
    large = {size: error for size, error in hidden.items() if size >= LARGE}
    small = {size: error for size, error in hidden.items() if size < LARGE}
    for what, errors in (("large", large), ("small", small)):
        if errors:
            yield _error(sweep.metric_name(f"holdout-{what}"), errors)


def _parameters(sweep: Sweep, curve: Curve) -> Iterator[Metric]:
    first, last = curve.pieces[0], curve.pieces[-1]
    shape: dict[str, Any] = {"sizes": len(sweep.sizes), "jumps": curve.jumps}
    for number, piece in enumerate(curve.pieces, 1):
        shape |= {
            f"{number}.from": piece.start,
            f"{number}.latency": piece.latency,
            f"{number}.per-byte": piece.per_byte,
        }
    count = len(sweep.sizes)
    yield derived(sweep.metric_name("pieces"), len(curve.pieces), "count", samples=count, **shape)
    latency_ci, (low, high) = interval(curve, 0).latency, interval(curve, -1).per_byte
    steps = delays(sweep.link, sweep.op, sweep.ranks)
    hops: dict[str, Any] = {"delays": steps, "one-way": first.latency / steps} if steps else {}
    latency, bandwidth = sweep.metric_name("latency"), sweep.metric_name("bandwidth")
    yield derived(latency, first.latency, "s", samples=count, spread=_finite(latency_ci), **hops)
    if last.per_byte > 0:
        # Open above where the per-byte cost may be nothing.
        spread = (1 / high, 1 / low) if low > 0 else None
        yield derived(bandwidth, 1 / last.per_byte, "B/s", samples=count, spread=_finite(spread))


def _sizes_of(curve: Curve) -> list[float]:
    return [abs(residual) for residual in curve.residuals]


def _error(
    name: Name, errors: Mapping[int, float], more: Mapping[str, float] | None = None
) -> Metric:
    median = median_ci(list(errors.values()))
    worst = max(errors, key=lambda size: errors[size])
    detail: dict[str, Any] = {"worst": errors[worst], "worst-bytes": worst, **(more or {})}
    spread = (median.low, median.high)
    return derived(name, median.value, "share", samples=len(errors), spread=spread, **detail)


def _finite(spread: tuple[float, float] | None) -> tuple[float, float] | None:
    return spread if spread and np.isfinite(spread).all() else None


PLAN = Plan(derive=derive)


def delays(link: str, operation: str, ranks: int) -> int | None:
    """Return how many one-way delays a small call takes, one after another; None if not known."""
    return _GLOO[operation](ranks)[0] if link == "gloo" and operation in _GLOO else None


def carried(link: str, operation: str, ranks: int) -> Fraction | None:
    """Return what each rank sends, as a share of the operation's size; None if not known.

    For all but reduce_scatter it is what the bandwidth-optimal algorithm asks for.
    """
    return _GLOO[operation](ranks)[1] if link == "gloo" and operation in _GLOO else None
