"""Layouts of a small GPT on this machine's cores: predicted by its constants, and measured.

`python -m pages layouts-here --record [RANKS]` does it again, on an idle machine, for the page of
predictions. No step has a part in its prediction: what is measured before are products, copies, a
layer of almost no tokens, the optimizer, and an all-reduce of each number of ranks.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import torch

from costlab.layouts import learn, step_time
from costlab.layouts.runs import Card, Run
from pages.blocks import LANGUAGES, MEASURED, fill_blocks, in_language, read_words, table
from pages.ranks import run_on_ranks
from pages.runs.predictions import PAGE
from shardlab.comm import World
from shardlab.comm.host import count_cores
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.pipeline.run import run as run_pipeline
from shardlab.pipeline.schedule import by_name
from shardlab.training.step import StepGradients

STORED = MEASURED / "layouts-here.json"
LAYERS, HIDDEN, HEADS, WORDS, TOKENS, BATCH = 4, 256, 8, 1024, 128, 8
MICRO_BATCHES = (1, 2)
ROUNDS, STEPS = 2, 2  # each layout is built so often, and each time steps so often after the first
SMALL, LARGE = 1 << 10, 1 << 20  # bytes of an all-reduce


class Constants(msgspec.Struct):
    """What this machine does, in a second of a rank while all ranks do the same.

    Args:
        products: operations.
        copies: bytes of memory.
        launches: seconds of a layer's pass with almost no tokens.
        optimizer: seconds of a parameter.
        links: by ranks, seconds and bytes a second of an all-reduce.
        sharing: ranks that share a core.
    """

    products: float
    copies: float
    launches: float
    optimizer: float
    links: dict[int, tuple[float, float]]
    sharing: float


class Layout(msgspec.Struct):
    """A layout: what was predicted, and what was measured."""

    tensor: int
    stages: int
    data: int
    micro_batch: int
    predicted: float
    measured: float = 0


def layouts(ranks: int) -> Iterator[Run]:
    """Yield each layout of the small GPT."""
    divisors = [n for n in range(1, ranks + 1) if ranks % n == 0]
    stages_of = [n for n in divisors if n <= LAYERS]
    for tensor, stages, micro_batch in itertools.product(divisors, stages_of, MICRO_BATCHES):
        if (
            ranks % (tensor * stages) == 0
            and BATCH % (ranks // tensor // stages * micro_batch) == 0
        ):
            yield Run(
                card="here", ranks=ranks, layers=LAYERS, hidden=HIDDEN, ffn=4 * HIDDEN,
                heads=HEADS, kv_heads=HEADS, vocabulary=WORDS, sequence=TOKENS, zero=0,
                global_batch=BATCH, stack="3d-flash", tensor=tensor, stages=stages,
                micro_batch=micro_batch,
            )  # fmt: skip


def predict(run: Run, here: Constants) -> float:
    """Return the seconds of a step: `step_time`'s work at this machine's rates.

    Ranks share the cores, so a rank that waits leaves its share to the others: stages of unequal
    work cost their mean, and a bubble only the cores for which there are too few ranks.
    """
    _, link = here.links.get(run.tensor, (0, 1e9))
    # `count` reckons with two bytes an element; here it has four.
    card = Card("", {16: here.products / 1e12}, here.copies / 2e9, link / 2e9, run.ranks,
                here.links[2][1] / 2e9 * 8, 0)  # fmt: skip
    work = step_time.count(run, card)
    unfused = float(np.exp(learn.load().logs["pointwise, unfused"]))
    waits = work["collectives"] * here.links.get(run.tensor, (0, 0))[0]
    layer = work["products"] + work["attention"] + unfused * work["pointwise"] + work["reduced"]
    layer += waits + work["passes"] * here.launches
    sent = work["sent"] + 2 * here.links[2][0] * (run.stages > 1)
    mean = (run.layers * layer + work["head products"] + work["head operands"]) / run.stages + sent
    busy = [stage * here.sharing / run.stages for stage in range(1, run.stages)]
    idle = sum(max(0.0, 1 - share) for share in busy) * mean / here.sharing
    held = run.layers * 12 * run.hidden**2 / run.tensor / run.stages
    held += run.hidden * run.vocabulary / run.tensor
    start, rate = here.links.get(run.data, (0, 1e9))
    reduced = start + 8 * held * (run.data - 1) / run.data / rate
    return float(run.micro_batches * mean + idle + reduced + held * here.optimizer)


def clock(world: World, body: Callable[[], object], times: int = 5) -> float:
    """Return the seconds of a call that all ranks make at once: the least mean of six rounds.

    Ranks that share a core take turns, so one call would be timed alone.
    """
    means = []
    for _ in range(6):
        world.whole.barrier()
        start = time.perf_counter()
        for _ in range(times):
            body()
        world.whole.barrier()
        means.append((time.perf_counter() - start) / times)
    return min(means)


def measure_constants(world: World) -> Constants:
    """Measure this machine while every rank does the same."""
    rows, wide = torch.randn(4 * TOKENS, HIDDEN), torch.randn(HIDDEN, 4 * HIDDEN)
    products = 2 * rows.numel() * wide.shape[1] / clock(world, lambda: rows @ wide, 50)
    large = torch.randn(1 << 22)
    copies = 8 * large.numel() / clock(world, large.clone, 20)
    config = GPTConfig(layers=LAYERS, hidden=HIDDEN, heads=HEADS, vocab=WORDS, sequence=TOKENS)
    grid = Grid(world=world, data=world.size)
    model = GPT(config, tensor=grid.tensor)
    tokens = torch.zeros((1, 2), dtype=torch.long)

    def step() -> None:
        torch.autograd.backward(model.loss(model(tokens), tokens))

    launches = clock(world, step) / (3 * LAYERS)
    adam = torch.optim.AdamW(model.parameters())
    optimizer = clock(world, adam.step) / sum(p.numel() for p in model.parameters())
    links = {}
    for ranks in (n for n in range(2, world.size + 1) if world.size % n == 0):
        axis = Grid(world=world, tensor=ranks, data=world.size // ranks).tensor
        small, large = torch.zeros(SMALL // 4), torch.zeros(LARGE // 4)
        start, end = (clock(world, partial(axis.all_reduce, x), 20) for x in (small, large))
        volume = 2 * (ranks - 1) / ranks * (LARGE - SMALL)
        links[ranks] = (start, volume / max(end - start, 1e-6))
    return Constants(products, copies, launches, optimizer, links,
                     max(1.0, world.size / count_cores()))  # fmt: skip


def measure(world: World) -> tuple[Constants, list[Layout]]:
    """Measure this machine, predict each layout, then measure its steps."""
    here = measure_constants(world)
    every = list(layouts(world.size))
    # Other programs can only add to a step, so the fastest counts.
    rounds = [[_measure_steps(world, run) for run in every] for _ in range(ROUNDS)]
    return here, [
        Layout(run.tensor, run.stages, run.data, run.micro_batch, predict(run, here), min(took))
        for run, took in zip(every, zip(*rounds, strict=True), strict=True)
    ]


def _measure_steps(world: World, run: Run) -> float:
    grid = Grid(world=world, tensor=run.tensor, pipeline=run.stages, data=run.data)
    config = GPTConfig(layers=LAYERS, hidden=HIDDEN, heads=HEADS, vocab=WORDS, sequence=TOKENS)
    part = GPT(config, tensor=grid.tensor, stage=grid.pipeline.rank, stages=run.stages)
    gradients = StepGradients(part, grid, microbatches=run.micro_batches)
    optimizer = torch.optim.AdamW(part.parameters())
    words = torch.randint(WORDS, (run.micro_batch, TOKENS))
    schedule = by_name("1f1b", run.stages, run.micro_batches)
    shape = part.hidden_shape(run.micro_batch, TOKENS)

    def step() -> None:
        batch = [(words, words)] * run.micro_batches
        run_pipeline(schedule, part, batch, part.loss, axis=grid.pipeline, shape=shape)
        gradients.finish()
        optimizer.step()
        gradients.zero_grad()

    took = []
    for _ in range(STEPS + 1):
        world.whole.barrier()
        start = time.perf_counter()
        step()
        world.whole.barrier()
        took.append(time.perf_counter() - start)
    return min(took[1:])


def score(measured: list[Layout]) -> tuple[float, float, float]:
    """Return the cost of the layout ranked first, that of chance, and Spearman's correlation."""
    from scipy.stats import spearmanr  # type: ignore[import-untyped]

    best = min(layout.measured for layout in measured)
    first = min(measured, key=lambda layout: layout.predicted)
    mean = statistics.mean(layout.measured for layout in measured)
    order = spearmanr([x.predicted for x in measured], [x.measured for x in measured])
    return first.measured / best - 1, mean / best - 1, float(order.statistic)


def record(ranks: str = "4") -> None:
    """Measure again, which takes a few minutes."""
    _, measured = run_on_ranks(int(ranks), measure)[0]
    STORED.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")


def render() -> Iterator[tuple[Path, str]]:
    """Yield the page of predictions in each language."""
    measured = msgspec.json.decode(STORED.read_bytes(), type=list[Layout])
    chosen, chance, order = score(measured)
    for language in LANGUAGES:
        words = read_words("predictions")[language]
        rows = [
            [str(x.tensor), str(x.stages), str(x.data), str(x.micro_batch), f"{x.predicted:.2f}",
             f"{x.measured:.2f}"]
            for x in sorted(measured, key=lambda layout: layout.predicted)
        ]  # fmt: skip
        summary = words["here scores"].format(f"{100 * chosen:.1f} %", f"{100 * chance:.1f} %",
                                              f"{order:.2f}")  # fmt: skip
        path = in_language(PAGE, language)
        yield path, fill_blocks(path, {
            "layouts-here": f"{table(words['here'], '>>>>>>', rows)}\n\n{summary}",
        })  # fmt: skip
