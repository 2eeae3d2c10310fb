"""Schedules, groups and memory: what is decided by order and arithmetic, run without ranks."""

from __future__ import annotations

from collections.abc import Iterator

from costlab.counted import counted
from costlab.result import Metric
from shardlab.grid.layout import Layout
from shardlab.pipeline.schedule import by_name
from shardlab.pipeline.timeline import bubble, peak_live, simulate

STAGES = 4
# The groups that are often given for 8 ranks with 2 on each axis.
OFTEN_GIVEN = {
    "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "pp": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "dp": [[0, 4], [1, 5], [2, 6], [3, 7]],
}
# fp32 weights and gradients, and Adam's two moments: 4 bytes each (arXiv 1910.02054, section 3).
BYTES_A_PARAMETER = 4 + 4 + 4 + 4
CARDS = (8, 24, 80)


def schedules() -> Iterator[Metric]:
    """Play GPipe and 1F1B against a clock with equal stages: idle share, live micro-batches."""
    for microbatches in (2, 8):
        for name in ("gpipe", "1f1b"):
            schedule = by_name(name, STAGES, microbatches)
            where = f"p{STAGES}.m{microbatches}"
            idle = bubble(simulate(schedule, forward=1, backward=2))
            yield counted(f"{name}.{where}.bubble", idle, "ratio")
            live = max(peak_live(actions) for actions in schedule)
            yield counted(f"{name}.{where}.live", live)


def groups() -> Iterator[Metric]:
    """Megatron's own enumeration of 2 × 2 × 2, in its default order and in the alternative."""
    try:
        from costlab.contestants.megatron import parallel_state
    except ImportError:
        return
    for order in ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"):
        ranks = parallel_state.RankGenerator(tp=2, ep=1, dp=2, pp=2, cp=1, order=order)
        same = [axis for axis, given in OFTEN_GIVEN.items() if ranks.get_ranks(axis) == given]
        short = order.replace("cp-ep-", "")
        yield counted(f"groups.{short}.as-often-given", len(same), axes=", ".join(same))
    layout = Layout(tensor=2, data=2, pipeline=2)
    share = {rank: layout.coordinates(rank)["data"] for rank in range(8)}
    group = max(len({share[rank] for rank in group}) for group in layout.groups("dp"))
    yield counted("batch-shares.data-group", group)
    replica = max(len({share[rank] for rank in group}) for group in layout.groups("tp-pp"))
    yield counted("batch-shares.replica", replica)


def memory() -> Iterator[Metric]:
    """How many parameters fill a card with states alone, replicated and in fp32."""
    for card in CARDS:
        most = card * 1e9 / BYTES_A_PARAMETER
        yield counted(f"replicated.{card}gb.parameters", most, "parameters", how="derived")
