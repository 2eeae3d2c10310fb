"""Schedules run over real processes: equal to the unsharded model and to torch's pipelining.

A message that went to the wrong place or chunk shows in the first step's gradients, a wrong loss
scale in all of them alike, a stale buffer or a wrong order only over several steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from shardlab.comm import World
from shardlab.ledger import Ledger
from shardlab.pipeline.action import Schedule, ScheduleError, parts
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import (
    by_name,
    forward_only,
    gpipe,
    interleaved,
    one_forward_one_backward,
)
from tests.shardlab import pieces
from tests.shardlab.difference import beyond, difference, differences
from tests.shardlab.pieces import BATCH, HIDDEN, Piece

STEPS = 10
Values = Mapping[str, Mapping[str, Tensor]]
Differences = dict[str, dict[str, float]]

# By stages: schedule, micro-batches, chunks. Fewer micro-batches than stages, one alone, and more.
CASES = {
    1: [("gpipe", 3, 1), ("1f1b", 4, 1)],
    2: [("gpipe", 4, 1), ("1f1b", 1, 1), ("1f1b", 6, 1), ("interleaved", 4, 4)],
    4: [
        ("gpipe", 3, 1),
        ("1f1b", 2, 1),
        ("1f1b", 8, 1),
        ("interleaved", 8, 2),
        ("interleaved", 3, 2),
    ],
    8: [("gpipe", 4, 1), ("1f1b", 3, 1), ("1f1b", 12, 1)],
}


@pytest.fixture(scope="module")
def whole() -> Values:
    return pieces.whole_run(STEPS)


def chunks_of(world: World, chunks: int = 1) -> nn.ModuleList:
    """This rank's pieces: chunk c of stage s is piece c·p + s."""
    p = world.size
    return nn.ModuleList(Piece(c * p + world.rank, p * chunks) for c in range(chunks))


def named(chunks: nn.ModuleList, values: str) -> dict[str, Tensor]:
    """Gradients or weights by the whole model's names."""
    read = {"gradients": pieces.gradients, "weights": pieces.weights}[values]
    return {name: x for chunk in chunks for name, x in read(chunk).items()}


def sum_tied(world: World, chunks: nn.ModuleList) -> None:
    """Sum the embedding's gradient over the first and the last stage, as grid.embedding does."""
    if world.size == 1 or world.rank not in (0, world.size - 1):
        return
    ends = world.axis("embedding", [0, world.size - 1])
    tied = next(chunk.embedding for chunk in chunks if chunk.first or chunk.last)
    ends.all_reduce(tied.grad, out=tied.grad)


def step(
    world: World, schedule: Schedule, chunks: nn.ModuleList, m: int, index: int = 0
) -> list[Tensor]:
    """One step of gradients, the tied ones summed."""
    losses = run(
        schedule,
        list(chunks),
        pieces.microbatches(m, index),
        pieces.loss,
        axis=world.axis("pipeline", range(world.size)),
        shape=(BATCH // m, HIDDEN),
    )
    sum_tied(world, chunks)
    return losses


def against_whole(
    world: World, cases: list[tuple[str, int, int]], whole: Values
) -> dict[str, dict[str, float]]:
    found: Differences = {}
    for kind, m, v in cases:
        schedule = by_name(kind, world.size, m, v)
        chunks = chunks_of(world, v)
        optimizer = torch.optim.SGD(chunks.parameters(), lr=pieces.RATE)
        means = []
        first: dict[str, Tensor] = {}
        for index in range(STEPS):
            optimizer.zero_grad()
            losses = step(world, schedule, chunks, m, index)
            assert len(losses) == (m if world.rank == world.size - 1 else 0)
            means += [torch.stack(losses).mean()] if losses else []
            first = first or named(chunks, "gradients")
            optimizer.step()
        mine = {name: whole["gradients"][name] for name in named(chunks, "weights")}
        last = {name: whole["weights"][name] for name in named(chunks, "weights")}
        case = f"{kind}, {m} micro-batches, {v} chunks"
        found[f"{case}, gradients"] = differences(first, mine)
        found[f"{case}, weights"] = differences(named(chunks, "weights"), last)
        if means:
            found[f"{case}, losses"] = {"": difference(torch.stack(means), whole["losses"][""])}
    return found


@pytest.mark.parametrize("p", CASES)
def test_losses_gradients_and_ten_steps_equal_the_unsharded_model(
    pool, p: int, whole: Values
) -> None:
    assert beyond(pool(p).run(against_whole, CASES[p], whole)) == []


def against_torch(world: World, cases: list[tuple[str, int, int]]) -> Differences:
    """The same pieces under torch.distributed.pipelining, on the same group."""
    from torch.distributed.pipelining import (
        PipelineStage,
        Schedule1F1B,
        ScheduleGPipe,
        ScheduleInterleaved1F1B,
    )

    kinds = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}
    axis = world.axis("pipeline", range(world.size))
    found: Differences = {}
    for kind, m, v in cases:
        ours, theirs = chunks_of(world, v), chunks_of(world, v)
        losses = run(
            by_name(kind, world.size, m, v), list(ours), pieces.microbatches(m), pieces.loss,
            axis=axis, shape=(BATCH // m, HIDDEN),
        )  # fmt: skip
        stages = [
            PipelineStage(
                chunk, c * world.size + world.rank, v * world.size, world.device, group=axis.group
            )
            for c, chunk in enumerate(theirs)
        ]
        schedule = kinds[kind](stages if v > 1 else stages[0], m, pieces.loss)
        tokens_B, targets_B = pieces.data()
        torchs: list[Tensor] = []
        schedule.step(
            *[tokens_B] * (world.rank == 0),
            **{"target": targets_B, "losses": torchs} if world.rank == world.size - 1 else {},
        )
        case = f"{kind}, {m} micro-batches, {v} chunks"
        found[f"{case}, gradients"] = differences(
            named(ours, "gradients"), named(theirs, "gradients")
        )
        found[f"{case}, losses"] = {
            str(i): difference(mine, torchs[i]) for i, mine in enumerate(losses)
        }
        assert len(losses) == len(torchs)
    return found


@pytest.mark.parametrize(
    ("p", "cases"),
    [
        (1, [("gpipe", 2, 1), ("1f1b", 3, 1)]),
        (2, [("gpipe", 3, 1), ("1f1b", 4, 1), ("interleaved", 4, 2)]),
        (4, [("gpipe", 4, 1), ("1f1b", 6, 1), ("interleaved", 4, 2), ("interleaved", 3, 2)]),
        (8, [("1f1b", 8, 1)]),
    ],
)  # fmt: skip
def test_losses_and_gradients_equal_torchs_pipelining(
    pool, p: int, cases: list[tuple[str, int, int]]
) -> None:
    assert beyond(pool(p).run(against_torch, cases)) == []


def messages_counted(world: World) -> dict[str, tuple[object, object]]:
    """What the ledger saw of each schedule, and what the schedule says."""
    counted: dict[str, tuple[object, object]] = {}
    for kind, m, v in [
        ("gpipe", 4, 1),
        ("1f1b", 6, 1),
        ("interleaved", 4, 2),
        ("forward-only", 3, 1),
    ]:
        schedule = by_name(kind, world.size, m, v)
        chunks = chunks_of(world, v)
        with Ledger() as ledger:
            run(
                schedule, list(chunks), pieces.microbatches(m), pieces.loss,
                axis=world.axis("pipeline", range(world.size)), shape=(BATCH // m, HIDDEN),
            )  # fmt: skip
        # Every boundary of this stage's pieces, forward and (in training) backward, m times each.
        ends = [2 - (chunk.first + chunk.last) for chunk in chunks]
        count = m * sum(ends) // (2 if kind == "forward-only" else 1)
        expected = dict.fromkeys(("send", "recv"), count)
        if kind == "forward-only":
            expected = {
                "send": m * (world.rank < world.size - 1), "recv": m * (world.rank > 0),
            }  # fmt: skip
        size = BATCH // m * HIDDEN * 8
        counted[kind] = (
            {op: (ledger.total(op).count, ledger.total(op).payload) for op in expected},
            {op: (n, n * size) for op, n in expected.items()},
        )
        assert {entry.op for entry in ledger.entries} <= {"send", "recv"}
    return counted


@pytest.mark.parametrize("p", [2, 4])
def test_the_ledger_counts_each_boundary_once_each_way(pool, p: int) -> None:
    for counted in pool(p).run(messages_counted):
        for kind, (found, expected) in counted.items():
            assert found == expected, kind


class Saving(torch.autograd.Function):
    """Identity that saves its output for backward, as most layers do."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        y = x.clone()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (_,) = ctx.saved_tensors
        return grad


class Counting(nn.Module):
    """A piece that counts how many micro-batches' activations are alive at once."""

    def __init__(self, piece: Piece) -> None:
        super().__init__()
        self.piece = piece
        self.first, self.last = piece.first, piece.last
        self.kept: list[StorageWeakRef] = []
        self.outputs: list[StorageWeakRef] = []
        self.peak = self.outputs_peak = 0

    def forward(self, x: Tensor) -> Tensor:
        h = Saving.apply(self.piece(x))
        y = h * 1.0  # what is sent on: nothing saves it
        self.kept.append(StorageWeakRef(h.untyped_storage()))
        self.outputs.append(StorageWeakRef(y.untyped_storage()))
        self.peak = max(self.peak, sum(not s.expired() for s in self.kept))
        self.outputs_peak = max(self.outputs_peak, sum(not s.expired() for s in self.outputs))
        return y


def live(world: World) -> dict[str, tuple[int, int, int]]:
    found = {}
    for kind in ("gpipe", "1f1b", "forward-only"):
        stage = Counting(Piece(world.rank, world.size))
        run(
            by_name(kind, world.size, 8), stage, pieces.microbatches(8), pieces.loss,
            axis=world.axis("pipeline", range(world.size)), shape=(BATCH // 8, HIDDEN),
        )  # fmt: skip
        after = sum(not s.expired() for s in stage.kept)
        found[kind] = (stage.peak, stage.outputs_peak, after)
    return found


def test_activations_live_from_forward_to_backward_and_outputs_until_they_are_sent(pool) -> None:
    for rank, found in enumerate(pool(4).run(live)):
        assert found["gpipe"][0] == 8
        assert found["1f1b"][0] == 4 - rank
        assert found["forward-only"][0] == 1
        for kind, (_, outputs, after) in found.items():
            assert after == 0, kind
            assert outputs <= 3 + (rank == 3), kind  # this one, and two sends under way


def evaluation(world: World) -> dict[str, float]:
    """Forward only: the losses of training, and nothing left behind."""
    axis = world.axis("pipeline", range(world.size))
    found = {}
    for v in (1, 2):
        chunks = chunks_of(world, v)
        losses = run(
            forward_only(world.size, 3, v), list(chunks), pieces.microbatches(3), pieces.loss,
            axis=axis, shape=(8, HIDDEN),
        )  # fmt: skip
        assert all(p.grad is None for p in chunks.parameters())
        assert all(x.grad_fn is None for x in losses)
        if losses:
            tokens_B, targets_B = pieces.data()
            with torch.no_grad():
                whole = pieces.loss(Piece()(tokens_B), targets_B)
            found[str(v)] = difference(torch.stack(losses).mean(), whole)
    return found


def test_evaluation_gives_the_same_losses_and_leaves_no_gradient(pool) -> None:
    ranks = pool(2).run(evaluation)
    assert [list(found) for found in ranks] == [[], ["1", "2"]]
    assert max(ranks[1].values()) <= 1e-12


def frozen(world: World) -> Differences:
    """Stages without gradients: the first, one between, one that ignores its input."""
    axis = world.axis("pipeline", range(world.size))
    found: Differences = {}
    for still in range(world.size):
        whole = Piece()
        whole.embedding.requires_grad_(False)
        share = pieces.LAYERS // world.size
        for index in range(still * share, (still + 1) * share):
            whole.layers[str(index)].requires_grad_(False)
        tokens_B, targets_B = pieces.data()
        pieces.loss(whole(tokens_B), targets_B).backward()
        chunk = Piece(world.rank, world.size)
        wanted = {name: p.requires_grad for name, p in whole.named_parameters()}
        for name, p in chunk.named_parameters():
            p.requires_grad_(wanted[name])
        run(
            one_forward_one_backward(world.size, 4), chunk, pieces.microbatches(4), pieces.loss,
            axis=axis, shape=(6, HIDDEN),
        )  # fmt: skip
        mine, whole_gradients = pieces.gradients(chunk), pieces.gradients(whole)
        assert mine.keys() == {n for n, p in chunk.named_parameters() if p.requires_grad}
        found[f"stage {still} frozen"] = differences(mine, {n: whole_gradients[n] for n in mine})
    return found


def test_a_frozen_stage_hands_gradients_on(pool) -> None:
    assert beyond(pool(4).run(frozen)) == []


class Deaf(nn.Module):
    """A stage whose output doesn't depend on its input."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.ones(HIDDEN, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.value.expand(x.shape)  # not contiguous either


def deaf(world: World) -> tuple[float, float]:
    axis = world.axis("pipeline", range(world.size))
    chunk = Deaf() if world.rank else nn.Linear(HIDDEN, HIDDEN, dtype=torch.float64)
    x = torch.ones(2, HIDDEN, dtype=torch.float64)
    run(
        gpipe(world.size, 2), chunk, [(x, x)] * 2, lambda y, _: y.sum(), axis=axis, shape=x.shape,
        scale=1,
    )  # fmt: skip
    if world.rank == 0:
        return float(chunk.weight.grad.abs().max()), 0.0
    return 0.0, float((chunk.value.grad - 4).abs().max())


def test_a_stage_that_ignores_its_input_sends_a_gradient_of_zero(pool) -> None:
    assert pool(2).run(deaf) == [(0.0, 0.0), (0.0, 0.0)]


class Turned(nn.Module):
    """A layer whose output is not contiguous, and whose input's gradient isn't."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.weight = nn.Parameter(torch.randn(HIDDEN, HIDDEN, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight @ x.t()).t()


def turned(world: World) -> float:
    axis = world.axis("pipeline", range(world.size))
    x = torch.arange(4 * HIDDEN, dtype=torch.float64).view(4, HIDDEN) / 100
    chunk = Turned()
    run(
        gpipe(world.size, 2), chunk, [(half, half) for half in x.chunk(2)],
        lambda y, _: y.square().mean(), axis=axis, shape=(2, HIDDEN),
    )  # fmt: skip
    whole = nn.Sequential(*(Turned() for _ in range(world.size)))
    whole(x).square().mean().backward()
    return difference(chunk.weight.grad, whole[world.rank].weight.grad)


def test_what_is_sent_need_not_be_contiguous(pool) -> None:
    assert max(pool(2).run(turned)) <= 1e-12


def otherwise(world: World) -> Differences:
    """The same step over shared memory, with every message checked, and with exchanges taken apart."""
    schedule = interleaved(world.size, 4, 2)
    apart = [[part for action in actions for part in parts(action)] for actions in schedule]
    checked = World.adopt(check=True)
    ranks = range(world.size)
    found: Differences = {}
    expected: dict[str, Tensor] = {}
    for case, axis, actions in [
        ("torch", world.axis("pipeline", ranks), schedule),
        ("taken apart", world.axis("pipeline", ranks), apart),
        ("shared memory", world.axis("pipeline", ranks, link="shared-memory"), schedule),
        ("checked", checked.axis("pipeline", ranks), schedule),
    ]:
        chunks = chunks_of(world, 2)
        run(
            actions, list(chunks), pieces.microbatches(4), pieces.loss, axis=axis,
            shape=(BATCH // 4, HIDDEN),
        )  # fmt: skip
        expected = expected or named(chunks, "gradients")
        found[case] = differences(named(chunks, "gradients"), expected)
    return found


@pytest.mark.parametrize("p", [2, 4])
def test_any_link_carries_it_and_blocking_order_is_not_needed(pool, p: int) -> None:
    """Taken apart it would deadlock if a send were waited for: test_deadlock.py shows that."""
    assert beyond(pool(p).run(otherwise), tolerance=0) == []


def alone_in_chunks(world: World) -> dict[str, dict[str, float]]:
    """One stage that holds every piece: nothing is sent, results go from chunk to chunk."""
    from shardlab.comm import Axis
    from shardlab.pipeline.action import Backward, Forward
    from shardlab.pipeline.exchange import with_exchanges

    order = [
        step(m, c)
        for m in range(2)
        for step, cs in ((Forward, (0, 1)), (Backward, (1, 0)))
        for c in cs
    ]
    chunks = chunks_of(world, 2)
    run(
        with_exchanges([order]), list(chunks), pieces.microbatches(2), pieces.loss,
        axis=Axis.alone("pipeline"), shape=(12, HIDDEN),
    )  # fmt: skip
    whole = Piece()
    tokens_B, targets_B = pieces.data()
    pieces.loss(whole(tokens_B), targets_B).backward()
    expected = pieces.gradients(whole)
    tied = [chunk.embedding.grad for chunk in chunks]
    found = named(chunks, "gradients") | {"embedding": tied[0] + tied[1]}
    return {"": differences(found, expected)}


def test_chunks_of_one_stage_need_no_message(pool) -> None:
    assert beyond(pool(1).run(alone_in_chunks)) == []


def refusals(world: World) -> list[str]:
    from shardlab.comm import Axis

    axis = Axis.alone("pipeline")
    words = []
    for schedule, chunks, m, loss in [
        (gpipe(2, 2), Piece(), 2, pieces.loss),
        (gpipe(1, 2), [Piece(), Piece()], 2, pieces.loss),
        (gpipe(1, 2), Piece(), 3, pieces.loss),
        (gpipe(1, 2), Piece(), 2, lambda y, _: y),
        (forward_only(1, 2, 2), [Piece(0, 2), Piece(1, 2)], 2, pieces.loss),
    ]:
        try:
            run(schedule, chunks, pieces.microbatches(m), loss, axis=axis, shape=(1, HIDDEN))
        except (ScheduleError, ValueError) as error:
            words.append(str(error))
    return words


def test_what_does_not_fit_is_refused_before_anything_is_sent(pool) -> None:
    words = pool(1).run(refusals)[0]
    assert words == [
        "the schedule is for 2 stages, found 1: build it anew",
        "the schedule is for 1 chunks a stage, found 2: build it anew",
        "the schedule is for 2 micro-batches, found 3: build it anew",
        "the loss of a micro-batch must be one number, found shape (12, 5): reduce it, to a mean or "
        "(with scale=1) to a sum",
        "SF0 on stage 0 is torch.float64 of shape (12, 6); between stages goes torch.float64 of "
        "shape (1, 6): tell `run` the shape and dtype that every stage but the last returns",
    ]
