"""Steps on many grids leave the losses, norms and parameters of one process, in fp64.

If the first test fails alone, look at how the axes meet (`on_ranks.py`): an order, a divisor, a
group. If those of experts fail alone, look at who averages an expert's gradient: by how many ranks
it is divided, over which it is summed, how often its norm is counted. If those of FSDP fail alone,
look at the routers' scale, at `end_step`, and at the tied weight's flat parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from shardlab.experts.expert_config import ExpertConfig
from tests.shardlab.compositions.composition import Composition, Run
from tests.shardlab.compositions.on_ranks import worst

CLIP = 0.3  # below the norm of every step, so that clipping does something
PLAIN = ExpertConfig(count=4, top_k=2, ffn=8)


def place(ranks: int, **settings: Any) -> Composition:
    """A grid of so many ranks, whose other axis is data."""
    leg = Composition(heads=8, kv_heads=8, **settings)
    data = ranks // (leg.tensor * leg.pipeline * leg.context)
    bias = leg.bias and leg.expert_tensor == 1 and leg.experts is None
    return replace(leg, data=data, bias=bias, layers=max(2, leg.pieces))


def train(pool: Any, folder: Path, legs: list[Composition], optimizer: str = "sgd") -> None:
    for leg in legs:
        run = Run((leg,), optimizer, CLIP)
        assert worst(pool, run, folder) <= run.tolerance, leg


# Five of the sixteen ways to choose, such that each two choices meet in all four ways.
PAIRS = [
    (False, "gpipe", False, "sgd"),
    (True, "1f1b", True, "sgd"),
    (True, "gpipe", True, "adamw"),
    (False, "1f1b", True, "adamw"),
    (True, "1f1b", False, "adamw"),
]
WAYS = {1: 5, 2: 3, 4: 3, 8: 2}  # of these on each grid; they take turns where it is not all


def grids(ranks: int) -> list[tuple[int, int, int]]:
    return [s for s in product((1, 2, 4, 8), repeat=3) if s[0] * s[1] * s[2] == ranks]


def dense(ranks: int) -> Iterator[tuple[Composition, str]]:
    """Every grid in some ways; what a grid makes equal (no sequence parallel, one stage) once."""
    for i, (tensor, pipeline, data) in enumerate(grids(ranks)):
        sizes = {"tensor": tensor, "pipeline": pipeline}
        sizes["microbatches"] = min(4 if pipeline == ranks > 2 else 2, 8 // data)
        for turn in range(WAYS[ranks]):
            parallel, schedule, tied, optimizer = PAIRS[(i + 2 * turn) % len(PAIRS)]
            ways = {"schedule": schedule if pipeline > 1 else "1f1b", "tied": tied}
            yield (
                place(ranks, sequence_parallel=parallel and tensor > 1, **sizes, **ways),
                optimizer,
            )
        if pipeline == 2 and tensor <= 2 and data <= 2:
            for schedule in ("interleaved", "zb-h1"):
                ways = {"schedule": schedule, "sequence_parallel": tensor > 1}
                yield place(ranks, **sizes, **ways), "adamw"


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.ci), 8])
def test_every_grid_trains_as_one_process_does(pool: Any, tmp_path: Path, ranks: int) -> None:
    for leg, optimizer in dict.fromkeys(dense(ranks)):
        train(pool, tmp_path, [leg], optimizer)


# ------------------------------------------------------------------ experts


def routed(ranks: int, experts: ExpertConfig = PLAIN, **settings: Any) -> Composition:
    tensor = settings.get("tensor", 1)
    return place(ranks, experts=experts, sequence_parallel=tensor > 1, **settings)


GRIDS = {
    1: [routed(1)],
    2: [
        routed(2, expert=2),
        routed(2, tensor=2, expert_tensor=2),
        routed(2, tensor=2, expert=2),
        routed(2, tensor=2),  # here megatron-core 0.16.1 learns wrong experts …
        routed(2, expert_tensor=2),  # … and here
        routed(2, pipeline=2, microbatches=2),
    ],
    4: [
        routed(4, tensor=2, expert=2),
        routed(4, tensor=2, expert=4),
        routed(4, tensor=2, expert=2, expert_tensor=2),
        routed(4, expert=2, expert_tensor=2),
        routed(4, expert=4, microbatches=2, reduction="tokens"),
        routed(4, tensor=2, pipeline=2, expert=2, microbatches=4),
        routed(4, tensor=2, expert=2, microbatches=2, reduction="tokens"),
    ],
    8: [
        routed(8, tensor=2, pipeline=2, expert=2, microbatches=2),
        routed(8, tensor=2, pipeline=2, expert=2, expert_tensor=2, microbatches=2),
        routed(8, pipeline=2, expert=4, microbatches=2),
    ],
}
LEFT = [
    (1, "all-gather"), (2, "all-to-all"), (4, "all-gather"), (8, "all-to-all"), (8, "all-gather"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "dispatch"),
    [
        (1, "all-to-all"),
        (2, "all-gather"),
        (4, "all-to-all"),
        *(pytest.param(*options, marks=pytest.mark.ci) for options in LEFT),
    ],
)
def test_experts_train_on_every_grid_as_in_one_process(
    pool: Any, tmp_path: Path, ranks: int, dispatch: str
) -> None:
    experts = replace(PLAIN, dispatch=dispatch)
    train(pool, tmp_path, [replace(leg, experts=experts) for leg in GRIDS[ranks]])


# One loss at a time: of two one could be too large by what the other lacks.
STEERED = {
    "load": replace(PLAIN, aux_loss=0.5),
    "load of a sequence": replace(PLAIN, sequence_aux_loss=0.5),
    "load of the batch": replace(PLAIN, global_aux_loss=0.5),
    "size of logits": replace(PLAIN, z_loss=0.5),
    "bias and shared": replace(PLAIN, scores="sigmoid", bias_rate=0.05, shared=16),
    "gated": replace(PLAIN, shared=16, shared_gate=True, groups=2, top_groups=1, scaling=2.0),
    "padded": replace(PLAIN, capacity=0.5, drop="position", pad=True),
    "sinkhorn": replace(PLAIN, sinkhorn=True),  # of each rank's rows
}
CUT = [
    routed(4, tensor=2, context=2),
    routed(4, tensor=2, expert=2, expert_tensor=2, context=2),
    routed(4, pipeline=2, context=2),  # experts are held as the dense layers are
    routed(4, tensor=2, expert=4, context=2, reduction="tokens"),
    routed(4, tensor=2, expert=2, microbatches=2),
    routed(4, pipeline=2, expert=2, microbatches=2, reduction="tokens"),
]
OF_DATA = [
    routed(4, expert=4),
    routed(4, expert=2, microbatches=2),
    routed(4, pipeline=2, expert=2, microbatches=2),
]
ROUTED = CUT + OF_DATA
# Each of what a router has and each of these grids at least once, each kind with a sum over tokens.
FEW = {"load": (1, 3, 5, 6), "bias and shared": (0, 3, 5, 7), "padded": (2, 3, 4, 8)}
ALL = {kind: range(6 * (kind == "sinkhorn"), 9) for kind in STEERED}


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [*FEW.items(), *(pytest.param(*each, marks=pytest.mark.ci) for each in ALL.items())],
)
def test_what_steers_a_router_weighs_the_same_on_every_grid(
    pool: Any, tmp_path: Path, kind: str, numbers: Sequence[int]
) -> None:
    train(pool, tmp_path, [replace(ROUTED[n], experts=STEERED[kind]) for n in numbers])


# ------------------------------------------------------------------ FSDP

BALANCED, BIASED = STEERED["load"], replace(PLAIN, bias_rate=0.05, scores="sigmoid")
SHARDED = {
    2: [routed(2, BALANCED, sharded="FULL_SHARD", microbatches=4),
        routed(2, BALANCED, sharded="SHARD_GRAD_OP", microbatches=4),
        routed(2, BALANCED, sharded="NO_SHARD", microbatches=4),
        routed(2, BIASED, sharded="FULL_SHARD", microbatches=4),
        routed(2, BIASED, sharded="NO_SHARD", microbatches=4),
        place(2, sharded="FULL_SHARD", microbatches=4, reduction="tokens"),
        routed(2, BALANCED, sharded="FULL_SHARD", microbatches=4, reduction="tokens")],
    4: [place(4, pipeline=2, sharded="FULL_SHARD", microbatches=4),
        place(4, pipeline=2, sharded="NO_SHARD", microbatches=4),
        routed(4, BALANCED, pipeline=2, sharded="FULL_SHARD", microbatches=4),
        place(4, tensor=2, sharded="FULL_SHARD"),
        place(4, tensor=2, sharded="SHARD_GRAD_OP", sequence_parallel=True)],
}  # fmt: skip


@pytest.mark.parametrize("ranks", SHARDED)
def test_steps_in_fsdp_equal_those_of_one_process(pool: Any, tmp_path: Path, ranks: int) -> None:
    train(pool, tmp_path, SHARDED[ranks])
