"""What a stack holds beyond the counted bytes, as published runs and own runs show it.

`plan_of` says which bytes each published program has for a parameter and a loss. `estimate` turns
counted bytes into an interval, which own runs make narrower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costlab.layouts import memory, runs
from costlab.layouts.model import (
    LayoutError,
    Model,
    Plan,
    check,
    data_ranks,
    pieces_with_ends,
    refuse,
)
from costlab.layouts.model_config import PROGRAMS
from costlab.layouts.runs import Run

GIB = 2.0**30
JUDGED = ("bloom-prequel", "hagemann-2023")  # sources that publish runs out of memory
MEGATRON = ("megatron", "megatron-sp", "megatron-core")
# Published units, in bytes: nvidia-smi's MiB by the thousand; torch's GiB.
UNITS = {"bloom-prequel": 1000 * 2.0**20, "torchtitan": GIB, "trainy": GIB}


def uneven(run: Run) -> tuple[int, ...]:
    """Return the layers of each stage, where the stages of a published run are unequal.

    Raises:
        LayoutError: no such cut leaves every stage a layer.
    """
    p, layers = run.stages * run.chunks, run.layers
    if p < 1 or layers % p == 0 or (layers + 2) % p == 0:
        return pieces_with_ends(layers, p)
    each = -(-layers // p)  # DeepSpeed gives the last stage what is left
    if (last := layers - each * (p - 1)) < 1:
        raise LayoutError(f"{layers} layers leave the last of {p} stages none")
    return (*(each,) * (p - 1), last)


def plan_of(run: Run) -> tuple[Model, Plan]:
    """Return the model and plan of a published run.

    Raises:
        LayoutError: they are impossible, or their card, stack or type is unknown.
    """
    _refuse_unknown(run)
    data = data_ranks(run.ranks, run.tensor, run.stages, run.context)
    stack, source = runs.STACKS[run.stack], runs.sources().get(run.source, {})
    sizes = {name: getattr(run, name) for name in runs.MODEL} | {"top_k": run.top_k or 1}
    norm = "rms" if run.gated else "layer"
    model = Model(**{**sizes, "bias": not run.gated, "norm": norm, "tied": False,
                     **source.get("model", {})})  # fmt: skip
    settings = {name: getattr(run, name) for name in (*runs.LAYOUT, "sequence", "global_batch")}
    settings |= {
        "data": data, "layers": uneven(run),
        "sequence_parallel": stack.sequence_parallel and run.tensor > 1,
        "attention": "unfused" if stack.attention in ("softmax", "eager") else "fused",
    }  # fmt: skip
    plan = Plan(**settings | _program_of(run, data) | source.get("plan", {}))
    check(model, plan)
    return model, plan


def _refuse_unknown(run: Run) -> None:
    for name, choices in (("card", runs.CARDS), ("stack", runs.STACKS), ("dtype", runs.BITS),
                          ("recompute", runs.RECOMPUTE)):  # fmt: skip
        refuse((getattr(run, name) not in choices,
                f"{name} = {getattr(run, name)!r}: choose {', '.join(choices)}"))  # fmt: skip
    refuse((not 0 <= run.network < 1 << 20, f"network = {run.network}: choose Gbit/s from 0"),
           (runs.BITS[run.dtype] not in runs.CARDS[run.card].flops,
            f"{run.card} has no {run.dtype}: its data sheet names no such rate"),
           (run.experts == 0 < run.top_k, f"top-k = {run.top_k} of 0 experts"))  # fmt: skip


def _program_of(run: Run, data: int) -> dict[str, Any]:
    """Return the bytes and habits of the program that a run had, as settings of `Plan`."""
    fused = runs.STACKS[run.stack].fused
    if run.zero == 3:
        recompute = "alternate" if run.recompute == "selective" else run.recompute
        gathered = 1 if run.dtype == "fp8" and data > 1 else 2
        return PROGRAMS["fsdp"] | {"compiled": fused, "gathered": gathered, "recompute": recompute}
    # Megatron has gradients in fp32, its default; published rows are counted in bf16.
    habits = PROGRAMS["megatron" if not run.source and run.stack in MEGATRON else "deepspeed"]
    if run.stack.startswith("3d-"):  # Aleph Alpha's own code
        return habits | {"whole_logits": True, "loss_copies": 2, "gathered_inputs": True,
                         "unfused_norms": not fused}  # fmt: skip
    if run.model == "nemotron-340b":  # moments in bf16, with which NeMo has no fp32 weights
        return habits | {"optimizer": 4}
    if run.source == "bloom-prequel" and run.dtype == "bf16":
        return habits | {"gradient": 6}  # summed in fp32 beside bf16
    return habits


# What a rank holds is about CONTEXT + STATE × state + OTHER × the rest: the driver's and the
# collectives' buffers, and what fragmentation adds. Each guess has a spread; RESIDUAL is that of a
# run about its stack's own values, and BOUNDS are counted bytes' multiples without an own run.
GUESS, SPREAD, RESIDUAL = (4 * GIB, 1.05, 1.1), (3 * GIB, 0.2, 0.3), 0.08
BOUNDS = (1.0, 1.6)  # no published run out of memory is below 1/1.59 of its card
DEVIATIONS = 3  # of an interval's half, in standard deviations
STATE = ("weights", "gradients", "optimizer")
USABLE = 0.99  # of a card's nominal GiB


@dataclass(frozen=True)
class Estimate:
    """The bytes that a run needs: the likely number, and its interval."""

    counted: float
    likely: float
    low: float
    high: float

    def verdict(self, room: float) -> str:
        """Return the verdict, in words, on a card with so many bytes."""
        if self.high <= room:
            return "fits"
        if self.low > room:
            return "does not fit"
        return "probably does not fit" if self.likely > room else "too close to say"


def estimate(
    rank: Mapping[str, float], own: Sequence[tuple[Mapping[str, float], float]] = ()
) -> Estimate:
    """Return what a rank needs, from what is counted and from own runs.

    Args:
        rank: a rank's bytes by kind.
        own: of each own run, its worst rank's bytes by kind, and the bytes that were measured.

    """
    row, counted = _split(rank), sum(rank.values())
    precision = np.diag(1 / np.array(SPREAD) ** 2)
    target = precision @ np.array(GUESS)
    for own_rank, measured in own:
        relative = _split(own_rank) / measured / RESIDUAL
        precision = precision + np.outer(relative, relative)
        target = target + relative / RESIDUAL
    likely = float(row @ np.linalg.solve(precision, target))
    if not own:
        return Estimate(counted, likely, BOUNDS[0] * counted, BOUNDS[1] * counted)
    variance = float(row @ np.linalg.solve(precision, row)) + (RESIDUAL * likely) ** 2
    half = DEVIATIONS * math.sqrt(variance)
    low, high = likely - half, likely + half
    # A small run alone says little about a large one. What own runs don't contradict still holds.
    ratios = [measured / sum(own_rank.values()) for own_rank, measured in own]
    if min(ratios) >= BOUNDS[0]:
        low = max(low, BOUNDS[0] * counted)
    if max(ratios) <= BOUNDS[1]:
        high = min(high, BOUNDS[1] * counted)
    return Estimate(counted, likely, low, high)


def _split(rank: Mapping[str, float]) -> NDArray[np.float64]:
    state = sum(rank[kind] for kind in STATE)
    return np.array([1.0, state, sum(rank.values()) - state])


def worst_rank(model: Model, plan: Plan) -> dict[str, float]:
    """Return the bytes by kind of the rank that holds most."""
    stages = memory.all_ranks(model, plan)
    return stages[memory.worst(stages)]


def usable_bytes(card: str) -> float:
    """Return the bytes that programs may use on a card, by its name in facts.toml."""
    return runs.CARDS[card].gb * GIB * USABLE


def published_ranks() -> list[tuple[Run, dict[str, float], float]]:
    """Return runs whose memory was published, or that had too little: worst rank, and bytes."""
    rows = []
    for run in runs.published():
        if run.experts or not (run.gb or run.source in JUDGED):
            continue
        try:
            rank = worst_rank(*plan_of(run))
        except LayoutError:
            continue
        rows.append((run, rank, run.gb * UNITS.get(run.source, GIB)))
    return rows
