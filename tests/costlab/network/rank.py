"""One rank on one node: reads the lab's orders as lines of JSON, and answers each with a line.

    {"do": "join", "ranks": 2, "link": "fast", "address": …, "port": …}   meets the others at node0
    {"do": "call", "operation": …, "bytes": …}      calls it three times, untimed
    {"do": "measure", "operations": […], "sizes": […]}   the bench's own section "collectives"
    {"do": "leave"}

Ranks past the number that was joined last do nothing.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist

from costlab.record.options import Settings
from costlab.record.result import Metric
from costlab.sections.collectives import collectives, operations
from costlab.sections.collectives.operations import ITEM, OPERATIONS, elements
from shardlab.comm import World
from tests.limits import LIMIT

CALLS = 3


def main() -> None:
    """Carry out the orders of standard input until it ends."""
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    # The bench, cut down to what is asked here: over gloo alone, and few repeats, for a wire whose
    # times are set by what it was given and not by a scheduler.
    operations.links = lambda world: ("gloo",)  # type: ignore[assignment]
    collectives.BUDGET["quick"] = 0.0  # as few rounds as it ever makes
    collectives.TRAIN, collectives.SEVERAL, collectives.WARMUP = 0, 4096, 1
    world: World | None = None
    ranks = 0
    for line in sys.stdin:
        order = json.loads(line)
        ranks = order.get("ranks", ranks)
        answer: dict[str, Any] = {}
        if rank >= ranks:
            pass
        elif order["do"] == "join":
            os.environ["GLOO_SOCKET_IFNAME"] = order["link"]  # read whenever a group is made
            store = dist.TCPStore(order["address"], order["port"], ranks, rank == 0)  # type: ignore[attr-defined]
            world = World.join(backend="gloo", store=store, rank=rank, size=ranks, timeout=LIMIT)
        elif world is not None:
            answer = _obey(order, world)
        print(json.dumps(answer), flush=True)


def _obey(order: dict[str, Any], world: World) -> dict[str, Any]:
    if order["do"] == "leave":
        world.close()
        return {}
    if order["do"] == "call":
        operation = OPERATIONS[order["operation"]]
        count = elements(order["bytes"], world.size)
        x = torch.ones(operation.brings(count, world.size))
        y = torch.ones(operation.gets(count, world.size))
        for _ in range(CALLS):
            operations.calls(world, "gloo")[operation.name](x, y)
        return {"asked": count * ITEM * CALLS}
    collectives.OPERATIONS = {name: OPERATIONS[name] for name in order["operations"]}
    settings = Settings(ranks=world.size, sizes=tuple(order["sizes"]))
    metrics = [m for m in collectives.measure(world, settings) if isinstance(m, Metric)]
    return {metric.id: metric.value for metric in metrics}


if __name__ == "__main__":
    main()
