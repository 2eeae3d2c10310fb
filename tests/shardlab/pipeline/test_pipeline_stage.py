"""One stage at a time: what it keeps alive, hands on and refuses.

Memory shows here alone; a gradient that gets lost at a stage without parameters shows as a
difference upstream of it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from shardlab.comm import Axis, World
from shardlab.pipeline.action import Backward, Forward, Receive, ScheduleError, Send
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import (
    by_name,
    forward_only,
    gpipe,
    one_forward_one_backward,
    with_exchanges,
)
from tests.shardlab import pieces
from tests.shardlab.default_device import on_default_device
from tests.shardlab.difference import difference, differences, list_exceeding
from tests.shardlab.pieces import BATCH, HIDDEN, Piece, chunks_of, gradients_of
from tests.shardlab.pipeline.test_pipeline_run import Differences
from tests.shardlab.pool import on_ranks


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


@on_default_device
def measure_peaks(world: World) -> dict[str, tuple[int, int, int]]:
    peaks = {}
    for kind in ("gpipe", "1f1b", "forward-only"):
        stage = Counting(Piece(world.rank, world.size))
        run(
            by_name(kind, world.size, 8), stage, pieces.microbatches(8), pieces.loss,
            axis=world.axis("pipeline", range(world.size)), shape=(BATCH // 8, HIDDEN),
        )  # fmt: skip
        after = sum(not s.expired() for s in stage.kept)
        peaks[kind] = (stage.peak, stage.outputs_peak, after)
    return peaks


def test_activations_live_from_forward_to_backward_and_outputs_until_they_are_sent(pool) -> None:
    for rank, peaks in enumerate(pool(4).run(measure_peaks)):
        assert peaks["gpipe"][0] == 8
        assert peaks["1f1b"][0] == 4 - rank
        assert peaks["forward-only"][0] == 1
        for kind, (_, outputs, after) in peaks.items():
            assert after == 0, kind
            assert outputs <= 3 + (rank == 3), kind  # this one, and two sends under way


@on_default_device
def evaluate(world: World) -> dict[str, float]:
    """Forward only: the losses of training, and nothing left behind."""
    axis = world.axis("pipeline", range(world.size))
    errors = {}
    for v in (1, 2):
        chunks = chunks_of(world, v)
        graphs: list[bool] = []
        for chunk in chunks:
            chunk.register_forward_hook(lambda _, __, y, seen=graphs: seen.append(y.requires_grad))
        losses = run(
            forward_only(world.size, 3, v), list(chunks), pieces.microbatches(3), pieces.loss,
            axis=axis, shape=(8, HIDDEN),
        )  # fmt: skip
        assert all(p.grad is None for p in chunks.parameters())
        assert graphs == [False] * 3 * v
        if losses:
            tokens_B, targets_B = pieces.data()
            with torch.no_grad():
                whole = pieces.loss(Piece()(tokens_B), targets_B)
            errors[str(v)] = difference(torch.stack(losses).mean(), whole)
    return errors


def test_evaluation_gives_the_same_losses_and_leaves_no_gradient(pool) -> None:
    ranks = pool(2).run(evaluate)
    assert [list(errors) for errors in ranks] == [[], ["1", "2"]]
    assert max(ranks[1].values()) <= 1e-12


@on_default_device
def run_with_frozen_stage(world: World) -> Differences:
    """Stages without gradients: the first, one between, one that ignores its input."""
    axis = world.axis("pipeline", range(world.size))
    errors: Differences = {}
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
        local, whole_gradients = pieces.gradients(chunk), pieces.gradients(whole)
        assert local.keys() == {n for n, p in chunk.named_parameters() if p.requires_grad}
        errors[f"stage {still} frozen"] = differences(local, {n: whole_gradients[n] for n in local})
    return errors


def test_a_frozen_stage_hands_gradients_on(pool) -> None:
    assert list_exceeding(pool(4).run(run_with_frozen_stage)) == []


@on_default_device
def crossed(world: World) -> list[float]:
    """A list whose receives come in another order than the sends; `check` would refuse it."""
    send = [Forward(0), Forward(1), Send(Forward(0)), Send(Forward(1))]
    receive = [Receive(Forward(1)), Receive(Forward(0)), Forward(0), Forward(1)]
    losses = run(
        [send, receive], nn.Identity(), [(torch.full((1,), m), None) for m in (5.0, 7.0)],
        lambda y, _: y, axis=world.axis("pipeline", range(2)), shape=(1,), dtype=torch.float32,
    )  # fmt: skip
    return [float(value) for value in losses]


def test_no_message_is_taken_for_another(pool) -> None:
    assert pool(2).run(crossed) == [[], [5.0, 7.0]]


class Deaf(nn.Module):
    """A stage whose output doesn't depend on its input."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.ones(HIDDEN, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.value.expand(x.shape)  # not contiguous either


@on_default_device
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


@on_ranks(2, default_device=True)
def test_what_is_sent_need_not_be_contiguous(world: World) -> None:
    axis = world.axis("pipeline", range(world.size))
    x = torch.arange(4 * HIDDEN, dtype=torch.float64).view(4, HIDDEN) / 100
    chunk = Turned()
    run(
        gpipe(world.size, 2), chunk, [(half, half) for half in x.chunk(2)],
        lambda y, _: y.square().mean(), axis=axis, shape=(2, HIDDEN),
    )  # fmt: skip
    whole = nn.Sequential(*(Turned() for _ in range(world.size)))
    whole(x).square().mean().backward()
    assert difference(chunk.weight.grad, whole[world.rank].weight.grad) <= 1e-12


@on_default_device
def run_on_one_rank(world: World) -> dict[str, dict[str, float]]:
    """One stage that holds every piece: nothing is sent, results go from chunk to chunk."""
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
    actual = gradients_of(chunks) | {"embedding": tied[0] + tied[1]}
    return {"": differences(actual, expected)}


def test_chunks_of_one_stage_need_no_message(pool) -> None:
    assert list_exceeding(pool(1).run(run_on_one_rank)) == []


@on_default_device
def refusals(world: World) -> list[str]:
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
        "the schedule is for 2 stages, found 1: build it again",
        "the schedule is for 1 chunks a stage, found 2: build it again",
        "the schedule is for 2 micro-batches, found 3: build it again",
        "the loss of a micro-batch must be one number, found shape (12, 5): reduce it, to a "
        "mean or (with scale=1) to a sum",
        "SF0 on stage 0 is torch.float64 of shape (12, 6); between stages goes torch.float64 of "
        "shape (1, 6): tell `run` the shape and dtype that every stage but the last returns",
    ]
