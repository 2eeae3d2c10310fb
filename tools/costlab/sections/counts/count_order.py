"""Schedules, groups and memory: what is decided by order and arithmetic, run without ranks."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch.utils.data import DistributedSampler

from costlab.contestants import tutor
from costlab.contestants.dtensor import WholeGPT
from costlab.record.result import Metric
from costlab.sections.counts.counted import counted
from shardlab.pipeline.schedule import by_name
from shardlab.proofs.schedules.timeline import bubble, peak_live, simulate

STAGES = 4
# The groups that are often given for 8 ranks with 2 on each axis.
OFTEN_GIVEN = {
    "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "pp": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "dp": [[0, 4], [1, 5], [2, 6], [3, 7]],
}
# fp32 weights and gradients, and Adam's two moments: 4 bytes each (arXiv 1910.02054, section 3).
BYTES_A_PARAMETER = 4 + 4 + 4 + 4
CARDS = (8, 16, 24, 80)
# More parameters than the largest of these cards holds: 12·H² a layer.
WIDE, DEEP = 8192, 8


def schedules() -> Iterator[Metric]:
    """Play GPipe and 1F1B against a clock with equal stages: idle share, live micro-batches."""
    for microbatches in (2, 8):
        for name in ("gpipe", "1f1b"):
            schedule = by_name(name, STAGES, microbatches)
            where = f"p{STAGES}.m{microbatches}"
            idle = bubble(simulate(schedule, forward=1, backward=2))
            yield counted(f"{name}.{where}.bubble", idle, "share")
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
    yield from _shares(ranks.get_ranks("dp"), ranks.get_ranks("tp-pp"))


def _shares(data: list[list[int]], replicas: list[list[int]]) -> Iterator[Metric]:
    """Different samples that the ranks of a group draw, by Megatron's groups and torch's sampler.

    A rank's place in its data group is what a data loader shares out by.
    """
    drawn: dict[int, tuple[int, ...]] = {
        rank: tuple(DistributedSampler(range(8), len(group), place, shuffle=False))  # type: ignore[arg-type]
        for group in data
        for place, rank in enumerate(group)
    }
    for name, groups in (("data-group", data), ("replica", replicas)):
        most = max(len({drawn[rank] for rank in group}) for group in groups)
        yield counted(f"batch-shares.{name}", most)


def memory() -> Iterator[Metric]:
    """How many parameters fill a card with states alone, replicated and in fp32.

    And how many a wide model has whose vocabulary is the tutor's.
    """
    for card in CARDS:
        most = card * 1e9 / BYTES_A_PARAMETER
        yield counted(f"replicated.{card}gb.parameters", most, "parameters", how="derived")
    config = replace(tutor.config(WIDE), layers=DEEP)
    with torch.device("meta"):
        model = WholeGPT(config)
    total = sum(parameter.numel() for parameter in model.parameters())
    yield counted("tutors-vocabulary.wide-model", total, "parameters", vocabulary=config.vocab)
