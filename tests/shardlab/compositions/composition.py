"""Compositions of what shardlab offers, and runs over two of them, drawn from a seed.

What a draw may hold is all that is said to work together; what isn't must be refused, which
test_compositions.py asks for. The grid's rest is data.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.utils.checkpoint import checkpoint

from shardlab.experts.expert_config import ExpertConfig
from shardlab.gpt.config import LLAMA
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.layers.cross_entropy import IGNORED

BATCH = 8  # sequences in a step, of all data ranks together
FROZEN: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "embedding": ("word_embedding", "position_embedding"),
    "front": ("word_embedding", "position_embedding", "layers.0.", "layers.1."),
    "norms": ("layers.0.norm", "layers.1.norm", "final_norm"),
    "linears": ("layers.0.attention.qkv.weight", "layers.1.mlp"),
    "back": ("layers.1.", "final_norm"),
}
UNDRAWN = {  # for compositions that are written down
    "last stage": ("layers.1.", "final_norm", "head"),
    "experts of rank 0": tuple(f"layers.{n}.mlp.experts.{e}." for n in (0, 1) for e in (0, 1)),
}


@dataclass(frozen=True)
class Composition:
    """One way to train a step, on whose number the batch depends."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    kind: str = "ring"  # of attention over the context axis
    packed: bool = False  # documents side by side in each sequence
    expert: int = 1
    expert_tensor: int = 1
    experts: ExpertConfig | None = None
    sequence_parallel: bool = False
    schedule: str = "1f1b"
    microbatches: int = 1
    sharded: str | None = None  # FSDP's strategy; None for replicas
    reduction: str = "mean"
    main_grads: bool = False
    fused: bool = False
    tied: bool = True
    bias: bool = True
    heads: int = 4
    kv_heads: int = 4
    frozen: str = "nothing"
    dropout: float = 0.0
    recompute: str = "nothing"
    llama: bool = False  # RMS norms, rotary positions, a gated feed-forward network
    layers: int = 2
    step: int = 0

    @property
    def tolerance(self) -> float:
        """Relative, of any gradient.

        Megatron's router, and so ours, takes its scores in fp32, and the last bit of torch's fp32
        sigmoid depends on where in its row an element lies: the ranks cut rows elsewhere.
        """
        return 1e-6 if self.experts and self.experts.scores == "sigmoid" else 1e-11

    @property
    def ranks(self) -> int:
        return self.tensor * self.pipeline * self.data * self.context

    @property
    def fsdp(self) -> str:
        """As `shardlab.parity.case.Case` names it."""
        return self.sharded or ""

    @property
    def pieces(self) -> int:
        return self.pipeline * (2 if self.schedule == "interleaved" else 1)

    def config(self) -> GPTConfig:
        kind = {name: LLAMA[name] for name in ("norm", "position", "mlp")} if self.llama else {}
        return GPTConfig(
            **kind, layers=self.layers, hidden=16, ffn=16, heads=self.heads,
            kv_heads=self.kv_heads, vocab=21, sequence=8, tie_embeddings=self.tied,
            bias=self.bias, init_std=0.2, dropout=self.dropout, dtype=torch.float64,
            experts=self.experts,
        )  # fmt: skip

    def prepared(self, model: GPT) -> GPT:
        """Freeze, and recompute, what is to be."""
        for name, parameter in model.named_parameters():
            if name.startswith((FROZEN | UNDRAWN)[self.frozen]):  # as a router's bias always is
                parameter.requires_grad_(False)
        if self.recompute != "nothing":
            again = partial(checkpoint, use_reentrant=self.recompute == "reentrant")
            for block in model.layers.values():
                block.forward = partial(again, block.forward)  # type: ignore[method-assign]
        return model

    def documents(self) -> Tensor:
        """Which document each token of the batch belongs to: [BATCH, S]; the first is longer."""
        generator = torch.Generator().manual_seed(self.ranks)
        ends = torch.rand(BATCH, 8, generator=generator, device="cpu") < 0.3
        ends[0] = False
        return ends.cumsum(1).to(torch.get_default_device())

    def batch(self) -> Any:
        """Tokens and targets [BATCH, S]; where tokens are counted, some targets aren't."""
        generator = torch.Generator().manual_seed(self.step)
        text = torch.randint(21, (BATCH, 9), generator=generator, device="cpu")
        targets = text[:, 1:].clone()
        if self.reduction == "tokens":
            share = torch.rand(BATCH, 1, generator=generator, device="cpu")  # of each sequence
            targets[torch.rand(BATCH, 8, generator=generator, device="cpu") < share] = IGNORED
            targets[0, 0] = 0  # at least one counts
        return on_default_device(text[:, :-1], targets)


def on_default_device(*tensors: Tensor) -> Any:
    """Move what was drawn on the CPU, alike on every device."""
    return tuple(x.to(torch.get_default_device()) for x in tensors)


@dataclass(frozen=True)
class Run:
    """A run over one grid or several; its model is the same on all."""

    legs: tuple[Composition, ...]
    optimizer: str = "sgd"
    max_norm: float | None = None
    each: int = 2  # steps on each grid

    @property
    def tolerance(self) -> float:
        """Relative to how far each parameter moved (`Composition.tolerance` is of a gradient)."""
        return 10 * self.legs[0].tolerance

    def steps(self, number: int) -> Iterator[Composition]:
        """The steps on one of the grids."""
        for step in range(number * self.each, (number + 1) * self.each):
            yield replace(self.legs[number], step=step)

    def optimize(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """The optimizer of what trains; a stage may have nothing that does."""
        group = [{"params": [p for p in parameters if p.requires_grad]}]
        if self.optimizer == "sgd":
            return SGD(group, lr=0.1, momentum=0.9)
        # With torch's eps a gradient of rounding alone (a key's bias) would move a whole step.
        return AdamW(group, lr=0.01, eps=1e-3, weight_decay=0.1)


def draw_run(seed: int) -> Run:
    """Return the run of a seed."""
    dice = random.Random(f"two grids {seed}")
    model = _draw_model(dice)
    most = 8 if seed % 20 == 7 else 4
    legs = [_draw_leg(dice, model, dice.choice([1, 2, 2, 4, most])) for _ in range(2)]
    layers = max(2, *(leg.pieces for leg in legs))
    first, second = (replace(leg, layers=layers) for leg in legs)
    max_norm = dice.choice([None, 0.5])
    return Run((first, second), dice.choice(["sgd", "sgd", "adamw"]), max_norm)


def _draw_model(dice: random.Random) -> Composition:
    experts = _draw_experts(dice) if dice.random() < 0.7 else None
    return Composition(
        experts=experts, tied=dice.random() < 0.5, bias=dice.random() < 0.5,
        kv_heads=dice.choice([4, 4, 2]), dropout=dice.choice([0.0, 0.0, 0.0, 0.3]),
        frozen=dice.choice(["nothing", "nothing", *FROZEN]), llama=dice.random() < 0.5,
    )  # fmt: skip


def _draw_experts(dice: random.Random) -> ExpertConfig:
    top_k, scores = dice.choice([1, 2, 3]), dice.choice(["softmax", "softmax", "sigmoid"])
    capacity = dice.choice([None, None, 0.5, 1.0])
    return ExpertConfig(
        count=4, top_k=top_k, ffn=8, scores=scores, shared=dice.choice([None, 8]),
        pre_softmax=dice.random() < 0.5 or (top_k == 1 and scores == "softmax"),
        bias_rate=dice.choice([None, 0.01]) if scores == "sigmoid" else None,
        aux_loss=dice.choice([0.0, 0.3]), sequence_aux_loss=dice.choice([0.0, 0.2]),
        global_aux_loss=dice.choice([0.0, 0.0, 0.4]), z_loss=dice.choice([0.0, 0.1]),
        capacity=capacity, drop=dice.choice(["probs", "position"]),
        pad=capacity is not None and dice.random() < 0.5,
        dispatch=dice.choice(["all-to-all", "all-gather"]),
    )  # fmt: skip


def _draw_leg(dice: random.Random, model: Composition, ranks: int) -> Composition:
    """Draw a grid of so many ranks that this model can run on, and how it runs there."""
    cuts = [n for n in (1, 2, 4) if n <= ranks]
    grids = [
        (t, c, p)
        for t in cuts for c in cuts for p in cuts
        if t * c * p <= ranks and t <= model.kv_heads
        if not model.dropout or c == 1
    ]  # fmt: skip
    tensor, context, pipeline = dice.choice(grids)
    data = ranks // tensor // context // pipeline
    micro = dice.choice([m for m in (1, 2, 4) if m * data <= BATCH])
    deals = 4 // tensor % context == model.kv_heads // tensor % context == 0
    leg = replace(
        model, tensor=tensor, context=context, pipeline=pipeline, data=data, microbatches=micro,
        kind=dice.choice(["ring", "all-gather", *(["ulysses"] * deals)]),
        packed=dice.random() < 0.3,
        sequence_parallel=tensor > 1 and (model.experts is not None or dice.random() < 0.6),
        recompute=dice.choice(["nothing", "nothing", "not reentrant", "reentrant"]),
    )  # fmt: skip
    if leg.recompute == "reentrant" and leg.frozen in ("embedding", "front"):
        leg = replace(leg, recompute="not reentrant")
    return _draw_schedule(dice, _draw_sharding(dice, leg))


def _draw_sharding(dice: random.Random, leg: Composition) -> Composition:
    whole_experts = not leg.experts or leg.tensor == 1 or not leg.bias
    if whole_experts and dice.random() < 0.6:
        strategy = dice.choice(["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
        leg = replace(leg, sharded=strategy, expert_tensor=leg.tensor if leg.experts else 1)
    elif leg.experts:
        room = leg.tensor * leg.data * leg.context
        ways = [(e, t) for e in (1, 2, 4) for t in (1, 2) if room % (e * t) == 0]
        expert, expert_tensor = dice.choice([way for way in ways if way[1] == 1 or not leg.bias])
        leg = replace(leg, expert=expert, expert_tensor=expert_tensor)
    fused, main_grads = (leg.sharded is None and dice.random() < 0.3 for _ in range(2))
    reduction = dice.choice(["mean", "mean", "sum", "tokens"])
    return replace(leg, reduction=reduction, fused=fused, main_grads=main_grads)


def _draw_schedule(dice: random.Random, leg: Composition) -> Composition:
    if leg.pipeline == 1:
        return leg
    defers = leg.sharded is None and not (leg.fused and leg.main_grads)
    names = ["gpipe", "1f1b", *(["zb-h1"] * defers)]
    names += ["interleaved"] * (leg.microbatches % leg.pipeline == 0)
    return replace(leg, schedule=dice.choice(names))
