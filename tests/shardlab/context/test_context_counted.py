"""What attention over cut sequences sends and holds, against the formulas, to the byte."""

from __future__ import annotations

import weakref
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pages.ranks import alone
from shardlab.comm import World
from shardlab.context.parallel import ContextParallel
from shardlab.gpt.config import GPTConfig
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from shardlab.proofs import formulas
from shardlab.proofs.collective import Traffic, calls
from shardlab.proofs.formulas import Sizes
from shardlab.proofs.formulas.context import max_blocks_held, saved_bytes
from shardlab.proofs.ledger import Ledger
from shardlab.training.step import StepGradients

S, B, A, G, D = 16, 2, 8, 4, 4
KINDS = ("ring", "all-gather", "ulysses")
SIZES = {"tokens": S * B, "queries": A * D, "keys": G * D, "itemsize": 8}


def attention(world: World, kind: str) -> Tensor:
    q, k, v = (
        torch.zeros(B, n, S // world.size, D, dtype=torch.float64, requires_grad=True)
        for n in (A, G, G)
    )
    return ContextParallel(world.whole, kind).attend(q, k, v)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_sends_what_its_formula_says(kind: str, ranks: int) -> None:
    with alone(ranks - 1, ranks) as world, Ledger() as ledger:
        attention(world, kind).sum().backward()
    actual = Traffic(ledger.calls(phase=""), ledger.calls(phase="backward"))
    expected = formulas.context_attention(kind, ranks=ranks, **SIZES)
    assert actual == expected, ledger.summary()
    assert ledger.total().wire == expected.wire


def test_ring_and_all_gather_put_the_same_bytes_on_the_wire_and_ulysses_fewer_as_ranks_grow() -> (
    None
):
    for ranks, plain in product((2, 4, 8), (False, True)):
        sizes = SIZES | {"tokens": 64, "keys": A * D if plain else G * D}
        ring, gathered, ulysses = (
            formulas.context_attention(kind, ranks=ranks, **sizes).wire for kind in KINDS
        )
        assert ring == gathered
        # Of n ranks: 6 (n − 1) columns of keys against 4 (n − 1)/n of queries and of keys.
        assert ulysses / ring == pytest.approx(2 * (1 + A * D / sizes["keys"]) / (3 * ranks))


GRIDS = [g for g in product([1, 2], [2, 4], [1, 2], [1, 2]) if prod(g) <= 8]


@pytest.mark.parametrize("sizes", GRIDS, ids=lambda g: "x".join(map(str, g)))
def test_a_step_on_a_grid_with_a_context_axis_sends_what_the_formula_says(sizes: Any) -> None:
    tensor, context, stages, data = sizes
    kind = KINDS[sum(sizes) % 3]
    groups = A if kind == "ulysses" else A // 2
    with alone(0, prod(sizes)) as world:
        grid = Grid(world=world, tensor=tensor, context=context, pipeline=stages)
        config = GPTConfig(
            layers=2, hidden=A * D, heads=A, kv_heads=groups, head_size=D + 2, vocab=26, sequence=S,
            dtype=torch.float64, tie_embeddings=False,
        )  # fmt: skip
        model = GPT(
            config, tensor=grid.tensor, sequence_parallel=True, stages=stages,
            context=ContextParallel(grid.context, kind),
        )  # fmt: skip
        gradients = StepGradients(model, grid, microbatches=2, start="trust")
        assert gradients.replicas.axis.size == data * context
        tokens = torch.zeros(B, S // context, dtype=torch.int64)
        with Ledger() as ledger:
            run(
                by_name("1f1b", stages, 2), model, [(tokens, tokens)] * 2, model.loss,
                axis=grid.pipeline, shape=model.hidden_shape(B, S),
            )  # fmt: skip
            gradients.finish()
        buckets = [bucket.flat_N.nbytes for bucket in gradients.replicas.buckets]
        partial = 2 // stages * 6 * A * D + S * A * D + (stages == 1) * 2 * A * D
        parameters = len(list(model.parameters()))
    order = Traffic(step=calls("broadcast", parameters * 8, data * context))
    expected = order + formulas.step(
        Sizes(
            tokens=S * B, hidden=A * D, layers=2, itemsize=8, tensor=tensor, stages=stages,
            data=data, sequence_parallel=tensor > 1, micro_batches=2, context=context, kind=kind,
            queries=A * (D + 2), keys=groups * (D + 2),
        ),
        0, buckets=buckets, partial=partial,
    )  # fmt: skip
    assert ledger.calls() == expected.all, f"\n{ledger.summary()}\n{expected.all}"


# ------------------------------------------------------------------ the loss, and memory


class Blocks(TorchDispatchMode):
    """The most elements of keys, values and their gradients that live at once."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shape, self.now, self.most = shape, 0, 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else (result,):
            if isinstance(x, Tensor) and x.shape[-len(self.shape) :] == self.shape:
                storage = x.untyped_storage()
                if (key := storage._cdata) not in self.known:
                    self.known.add(key)
                    self.now += storage.nbytes()
                    self.most = max(self.most, self.now)
                    weakref.finalize(storage, self.gone, key, storage.nbytes())
        return result

    def gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


@pytest.mark.parametrize(
    ("kind", "ranks"),  # Ulysses sends four groups of keys to four ranks at most
    [(kind, ranks) for kind in KINDS for ranks in (2, 4, 8) if kind != "ulysses" or ranks <= G],
)
def test_a_rank_keeps_its_share_for_backward_to_the_byte(kind: str, ranks: int) -> None:
    saved: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        saved[x.data_ptr()] = x.nbytes
        return x

    with alone(0, ranks) as world, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        attention(world, kind)
    if kind == "ulysses":  # how to put rows in order and back, 8 bytes a token of the sequence
        saved = {at: size for at, size in saved.items() if size != S * 8}
    assert sum(saved.values()) == saved_bytes(ranks=ranks, heads=A, **SIZES)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS[:2])
def test_the_ring_holds_as_many_blocks_however_many_ranks_there_are(kind: str, ranks: int) -> None:
    with alone(0, ranks) as world:
        for backward in (False, True):
            block = (2, B, G, S // ranks, D)
            with Blocks(block) as blocks:
                out = attention(world, kind)
                if backward:
                    out.sum().backward()
            peak = blocks.most / (prod(block) * 8)
            assert peak == max_blocks_held(kind, ranks=ranks, backward=backward)
