"""Runs the experiments `inside` namespaces: makes a wire, starts ranks on it, prints one JSON.

python -m tests.costlab.network.lab sent     bytes on the wire
python -m tests.costlab.network.lab timed    links of known bandwidth, and a wire of known delay
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from costlab.record.names import call
from costlab.record.result import Metric
from costlab.sections.fit import carried, delays, sweeps
from costlab.sections.piecewise import one_line
from tests.costlab.network.namespaces import USEFUL, Wire, inside
from tests.costlab.network.relay import Relay

NODES = 4
WORLDS = (2, 4)
PAYLOAD = 4 << 20
RATES = (100e6, 500e6)  # bits a second
SIZES = (256 << 10, 512 << 10, 1 << 20)
DELAYS = (0.002, 0.010)  # seconds, one way
STEP = DELAYS[1] - DELAYS[0]
SMALL = 1 << 10
PATIENCE = 900  # seconds for an experiment; on a quiet machine it takes a twentieth
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


class Ranks:
    """A rank on each node, which carries out orders."""

    def __init__(self, wire: Wire, *, stand_back: bool) -> None:
        self._wire = wire
        self._port = 29500  # the nodes' network is theirs alone: nobody else can hold it
        self._ranks = []
        for node in range(wire.nodes):
            environment = os.environ | {
                "RANK": str(node),
                "OMP_NUM_THREADS": "1",
            }
            # Behind the relay, which a rank that spins must not keep waiting.
            command = ["nice", "-n", "10"] if stand_back else []
            command += [sys.executable, "-m", "tests.costlab.network.rank"]
            self._ranks.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", f"node{node}", *command], env=environment, text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )
            )  # fmt: skip

    @contextlib.contextmanager
    def joined(self, ranks: int, link: str) -> Iterator[None]:
        """Form a world of the first `ranks` ranks over this link, inside a with statement."""
        self._port += 1
        address = self._wire.address(0, link)
        self.order(do="join", ranks=ranks, link=link, address=address, port=self._port)
        yield
        self.order(do="leave")

    def order(self, **order: Any) -> list[dict[str, Any]]:
        """Give all ranks an order; return their answers.

        Raises:
            RuntimeError: a rank ended; its traceback stands on standard error.
        """
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.write(json.dumps(order) + "\n")
            rank.stdin.flush()
        lines = [rank.stdout.readline() for rank in self._ranks if rank.stdout is not None]
        if not all(lines):
            raise RuntimeError(f"rank {lines.index('')} ended at {order}")
        return [json.loads(line) for line in lines]


def count_sent_bytes(wire: Wire, ranks: Ranks) -> dict[str, Any]:
    """Count the bytes that calls of each operation send."""
    counts = {}
    for size in WORLDS:
        with ranks.joined(size, "fast"):
            for operation in OPERATIONS:
                ranks.order(do="call", operation=operation, bytes=PAYLOAD)
                before = wire.sent()
                answers = ranks.order(do="call", operation=operation, bytes=PAYLOAD)
                after = wire.sent()
                counts[f"{operation}.n{size}"] = [
                    (after[rank] - before[rank]) / answers[rank]["asked"] for rank in range(size)
                ]
    return counts


def measure_shaped_links(wire: Wire, ranks: Ranks) -> dict[str, Any]:
    """Measure all-reduces over links of known bandwidth."""
    times_by_rate = {}
    for rate in RATES:
        wire.shape(rate)
        for size in WORLDS:
            with ranks.joined(size, "fast"):
                times_by_rate[f"n{size}.{rate:.0f}"] = _undisturbed(
                    lambda: ranks.order(do="measure", operations=["all_reduce"], sizes=SIZES)[0],
                    lambda times, n=size, nominal=rate: within_five_percent(
                        fit_bandwidth(times, n), nominal
                    ),
                )
    return times_by_rate


def measure_delayed_links(relay: Relay, ranks: Ranks) -> dict[str, Any]:
    """Measure small calls over a wire of known delay."""

    def measure() -> dict[str, float]:
        times = {}
        for delay in DELAYS:
            relay.delay = delay
            metrics = ranks.order(do="measure", operations=OPERATIONS, sizes=[SMALL])[0]
            times |= {f"{delay} {name}": value for name, value in metrics.items()}
            relay.delay = 0.0
        return times

    times_by_size = {}
    for size in WORLDS:
        with ranks.joined(size, "slow"):
            times_by_size[f"n{size}"] = _undisturbed(
                measure,
                lambda times, n=size: all(
                    within_five_percent(fit_one_way_delay(times, op, n), STEP) for op in OPERATIONS
                ),
            )
    return times_by_size


def fit_bandwidth(times: dict[str, float], ranks: int) -> float:
    """Return the link's bits per second, headers included, from times of all-reduces."""
    metrics = {name: Metric(id=name, value=value, unit="s") for name, value in times.items()}
    sweep = sweeps(metrics)[f"gloo.all_reduce.n{ranks}"]
    carries = carried("gloo", "all_reduce", ranks)
    assert carries is not None
    per_byte = one_line(sweep.sizes, sweep.seconds).pieces[0].per_byte
    return 8 * float(carries) / per_byte / USEFUL


def fit_one_way_delay(times: dict[str, float], operation: str, ranks: int) -> float:
    """Return the increase of the one-way delay in seconds; the software's time cancels out."""
    steps = delays("gloo", operation, ranks)
    assert steps is not None
    name = call("gloo", operation, ranks, SMALL, "blocking").id
    short, long = (times[f"{delay} {name}"] for delay in DELAYS)
    return (long - short) / steps


def within_five_percent(measured: float, nominal: float) -> bool:
    """Return whether a measured value is within the promised 5 %."""
    return abs(measured / nominal - 1) <= 0.05


def _undisturbed(
    measure: Callable[[], dict[str, float]], agrees: Callable[[dict[str, float]], bool]
) -> dict[str, float]:
    least = measure()
    for _ in range(2):
        if agrees(least):
            break
        least = {name: min(least[name], value) for name, value in measure().items()}
    return least


def run_experiment(what: str) -> dict[str, Any]:
    """Run one of the experiments in namespaces of its own.

    Raises:
        RuntimeError: it failed, with the end of what it said.
    """
    command = inside([sys.executable, "-m", "tests.costlab.network.lab", what])
    answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if answer.returncode:
        raise RuntimeError(answer.stderr[-3000:])
    measured: dict[str, Any] = json.loads(answer.stdout)
    return measured


def main() -> None:
    """Run the experiment that the command line names."""
    wire = Wire(NODES)
    wire.switch()
    if sys.argv[1] == "sent":
        print(json.dumps(count_sent_bytes(wire, Ranks(wire, stand_back=False))), flush=True)
        return
    relay = Relay(wire)
    relay.start()
    ranks = Ranks(wire, stand_back=not relay.first)
    times = {
        "shaped": measure_shaped_links(wire, ranks),
        "delayed": measure_delayed_links(relay, ranks),
    }
    print(json.dumps(times | {"late": relay.late / relay.packets}), flush=True)


if __name__ == "__main__":
    main()
