"""Everything at once: tensor × pipeline × data (with sequence parallel, either schedule, tied or
untied embeddings) trains as one process does on the same batches. If this alone fails, the fault is
in how the axes meet (`step.py`): an order, a divisor, a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from shardlab.comm import Axis, World
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import sharding_of
from shardlab.pipeline.action import Schedule
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import gpipe, interleaved, one_forward_one_backward, zero_bubble
from shardlab.training.step import StepGradients

STEPS = 10
BATCH = 8  # sequences in a step, of all data ranks together
CLIP = 0.4  # below the norm of every step, so that clipping does something
SCHEDULES: dict[str, Callable[[int, int], Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "zb-h1": zero_bubble,
    "interleaved": lambda stages, microbatches: interleaved(stages, microbatches, 2),
}
CHUNKS = {"gpipe": 1, "1f1b": 1, "zb-h1": 1, "interleaved": 2}
CONFIG = GPTConfig(
    layers=2, hidden=16, heads=8, ffn=16, vocab=21, sequence=8, init_std=0.2, dtype=torch.float64
)


class Case(NamedTuple):
    """A way to train on n ranks; the vocabulary (21) divides on none of them but one."""

    tensor: int
    pipeline: int
    data: int
    sequence_parallel: bool
    schedule: str
    tied: bool
    optimizer: str
    steps: int = STEPS
    link: str = "torch"


class History(NamedTuple):
    """What training leaves: a loss and a gradient norm a step, and the parameters at the end."""

    losses: list[float]
    norms: list[float]
    parameters: dict[str, Tensor]


def config_of(case: Case) -> GPTConfig:
    layers = max(2, case.pipeline * CHUNKS[case.schedule])
    return replace(CONFIG, layers=layers, tie_embeddings=case.tied)


def batch(step: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens and targets [BATCH, 8] of a step."""
    generator = torch.Generator().manual_seed(step)
    text = torch.randint(CONFIG.vocab, (BATCH, CONFIG.sequence + 1), generator=generator).to(device)
    return text[:, :-1], text[:, 1:]


def optimizer_of(kind: str, parameters: Iterable[nn.Parameter]) -> Optimizer:
    # Key biases have no gradient but rounding, which AdamW would blow up to the size of a step:
    # hence an eps above it.
    if kind == "adamw":
        return AdamW(parameters, lr=0.01, eps=1e-4)
    return SGD(parameters, lr=0.1)


def alone(world: World, config: GPTConfig, kind: str, steps: int) -> History:
    """One process, whole batches, torch's own clipping."""
    model = GPT(config, tensor=Axis.alone(), device=world.device)
    optimizer = optimizer_of(kind, model.parameters())
    losses, norms = [], []
    for step in range(steps):
        tokens, targets = batch(step, world.device)
        optimizer.zero_grad()
        loss = model.loss(model(tokens), targets)
        loss.backward()
        limit = CLIP if kind == "adamw" else 1e9
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), limit)))
        losses.append(loss.item())
        optimizer.step()
    assert min(norms) > CLIP
    return History(losses, norms, {n: p.detach().cpu() for n, p in model.named_parameters()})


def train(world: World, case: Case) -> tuple[list[GPT], History]:
    link = case.link if world.device.type == "cpu" else "torch"  # shared memory is the host's
    grid = Grid(
        world=world, tensor=case.tensor, pipeline=case.pipeline, data=case.data,
        links=dict.fromkeys(("tensor", "pipeline", "data", "embedding"), link),
    )  # fmt: skip
    config, pieces = config_of(case), case.pipeline * CHUNKS[case.schedule]
    chunks = [
        GPT(
            config, tensor=grid.tensor, sequence_parallel=case.sequence_parallel, stage=piece,
            stages=pieces, device=world.device,
        )
        for piece in range(grid.pipeline.rank, pieces, case.pipeline)
    ]  # fmt: skip
    count = min(4 if case.pipeline == world.size > 2 else 2, BATCH // case.data)
    gradients = StepGradients(
        chunks, grid, microbatches=count, max_norm=CLIP if case.optimizer == "adamw" else None,
        start="verify", bucket_bytes=4000,
    )  # fmt: skip
    optimizer = optimizer_of(case.optimizer, [p for chunk in chunks for p in chunk.parameters()])
    schedule = SCHEDULES[case.schedule](case.pipeline, count)
    shape = chunks[0].hidden_shape(BATCH // case.data // count, config.sequence)
    losses, norms = [], []
    for step in range(case.steps):
        micro_batches = [
            t.chunk(case.data)[grid.data.rank].chunk(count) for t in batch(step, world.device)
        ]
        optimizer.zero_grad()
        losses_here = run(
            schedule, chunks, list(zip(*micro_batches, strict=True)), chunks[-1].loss,
            axis=grid.pipeline, shape=shape,
        )  # fmt: skip
        norms.append(float(gradients.finish()))
        optimizer.step()
        if losses_here:
            losses.append(grid.data.all_reduce(torch.stack(losses_here).mean(), op="mean").item())
    parameters = {n: p.detach() for chunk in chunks for n, p in chunk.named_parameters()}
    return chunks, History(losses, norms, parameters)


def errors(world: World, case: Case, right: History) -> dict[str, float]:
    """The worst relative error of losses, norms and each parameter."""
    chunks, history = train(world, case)
    worst = {"norm": _worst(history.norms, right.norms)}
    if chunks[-1].last:
        worst["loss"] = _worst(history.losses, right.losses)
    for name, parameter in (n for chunk in chunks for n in chunk.named_parameters()):
        cut, whole = sharding_of(parameter), right.parameters[name].to(world.device)
        error = (parameter.detach() - (cut.local(whole) if cut else whole)).abs().max()
        worst[name] = float(error / whole.abs().max())
    return worst


def _worst(losses: list[float], right: list[float]) -> float:
    return max(abs(f / r - 1) for f, r in zip(losses, right, strict=True))


def grids(ranks: int) -> list[tuple[int, int, int]]:
    return [s for s in product((1, 2, 4, 8), repeat=3) if s[0] * s[1] * s[2] == ranks]


# Five of the sixteen ways to choose, such that each two choices meet in all four ways.
PAIRS = [
    (False, "gpipe", False, "sgd"),
    (True, "1f1b", True, "sgd"),
    (True, "gpipe", True, "adamw"),
    (False, "1f1b", True, "adamw"),
    (True, "1f1b", False, "adamw"),
]
WAYS = {1: 5, 2: 5, 4: 3, 8: 2}  # of these on each grid; they take turns where it is not all


def cases_for(ranks: int) -> list[Case]:
    """Every grid in some ways; what a grid makes equal (no sequence parallel, one stage) once."""
    cases = set()
    for i, (tensor, pipeline, data) in enumerate(grids(ranks)):
        for turn in range(WAYS[ranks]):
            parallel, schedule, tied, kind = PAIRS[(i + 2 * turn) % len(PAIRS)]
            parallel = parallel and tensor > 1
            schedule = schedule if pipeline > 1 else "1f1b"
            # Ten steps once on each grid of up to four ranks, and three otherwise; of many ranks
            # the first way goes over shared memory, the others over gloo.
            steps = STEPS if ranks <= 2 or (ranks == 4 and turn == 0) else 3
            link = "shared-memory" if turn == 0 and ranks > 2 else "torch"
            cases.add(Case(tensor, pipeline, data, parallel, schedule, tied, kind, steps, link))
        if pipeline == 2 and tensor <= 2 and data <= 2:
            cases.add(Case(tensor, 2, data, tensor > 1, "interleaved", True, "adamw", 3))
            cases.add(Case(tensor, 2, data, tensor > 1, "zb-h1", True, "adamw", 3))
    return sorted(cases)


@pytest.fixture(scope="module")
def reference(pool: Any) -> Callable[[GPTConfig, str, int], History]:
    return cache(lambda config, kind, steps: pool(1).run(alone, config, kind, steps)[0])


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.ci), 8])
def test_every_grid_trains_as_one_process_does(
    pool: Any, reference: Callable[[GPTConfig, str, int], History], ranks: int
) -> None:
    for case in cases_for(ranks):  # one call each, so that each has its own time limit
        right = reference(config_of(case), case.optimizer, case.steps)
        for worst in pool(ranks).run(errors, case, right):
            assert max(worst.values()) <= 1e-12, (case, worst)


def test_every_pair_of_choices_meets_on_the_larger_grids() -> None:
    for first, second in ((a, b) for b in range(4) for a in range(b)):
        assert len({(way[first], way[second]) for way in PAIRS}) == 4
    assert [len(grids(n)) for n in (1, 2, 4, 8)] == [1, 3, 6, 10]
