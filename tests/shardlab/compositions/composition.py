"""A composition of what shardlab offers, drawn from a seed.

What a draw may hold is all that is said to work together; what isn't must be refused, which
test_compositions.py asks for. The grid's rest is data.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from shardlab.experts.config import ExpertConfig
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
    """One way to train a step; the fields' values are those that `draw` knows."""

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
            **kind, layers=max(2, self.pieces), hidden=16, ffn=16, heads=self.heads,
            kv_heads=self.kv_heads, vocab=21, sequence=8, tie_embeddings=self.tied,
            bias=self.bias, init_std=0.2, dropout=self.dropout, dtype=torch.float64,
            experts=self.experts,
        )  # fmt: skip

    def prepared(self, model: GPT) -> GPT:
        """Freeze, and recompute, what is to be."""
        for name, parameter in model.named_parameters():
            if name.startswith(
                (FROZEN | UNDRAWN)[self.frozen]
            ):  # a router's bias is frozen from the first
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
        generator = torch.Generator().manual_seed(self.ranks)
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


def draw(seed: int, ranks: int) -> Composition:
    """Return the composition of a seed, on so many ranks."""
    dice = random.Random(f"{seed} {ranks}")
    sizes = [n for n in (1, 2, 4, 8) if n <= ranks]
    grids = [
        (t, p, ranks // t // p)
        for t in sizes for p in sizes
        if t * p <= ranks and t <= 4 and p <= 4 and ranks // t // p <= 4
    ]  # fmt: skip
    tensor, pipeline, data = dice.choice(grids)
    base = Composition(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        sequence_parallel=tensor > 1 and dice.random() < 0.6,
        tied=dice.random() < 0.5,
        bias=dice.random() < 0.7,
        kv_heads=dice.choice([4, 4, tensor]),
        frozen=dice.choice(["nothing", "nothing", *FROZEN]),
        dropout=dice.choice([0.0, 0.0, 0.3]),
        recompute=dice.choice(["nothing", "nothing", "not reentrant", "reentrant"]),
        fused=dice.random() < 0.3,
    )
    base = replace(base, microbatches=dice.choice([m for m in (1, 2, 4) if m * data <= BATCH]))
    return _settled(_cut(_reduced(_scheduled(_with_experts(base, dice), dice), dice), seed))


def on(seed: int) -> int:
    """The ranks of a seed: two or four, and now and then one, or eight."""
    return 8 if seed % 20 == 7 else (2, 4, 1, 4, 2)[seed % 5]


def _with_experts(base: Composition, dice: random.Random) -> Composition:
    if dice.random() < 0.5:
        return base
    top_k, before = dice.choice([1, 2, 3]), dice.random() < 0.5
    scores = dice.choice(["softmax", "sigmoid"])
    chosen = ExpertConfig(
        count=4, top_k=top_k, ffn=8, scores=scores, shared=dice.choice([None, 8]),
        pre_softmax=before or (top_k == 1 and scores == "softmax"),
        aux_loss=dice.choice([0.0, 0.3]), sequence_aux_loss=dice.choice([0.0, 0.2]),
        z_loss=dice.choice([0.0, 0.1]), dispatch=dice.choice(["all-to-all", "all-gather"]),
    )  # fmt: skip
    seldom = random.Random(f"experts {dice.random()}")
    chosen = replace(
        chosen, global_aux_loss=seldom.choice([0.0, 0.0, 0.4]),
        capacity=seldom.choice([None, None, 0.5, 1.0]), drop=seldom.choice(["probs", "position"]),
    )  # fmt: skip
    chosen = replace(chosen, pad=chosen.capacity is not None and seldom.random() < 0.5)
    room = base.tensor * base.data
    ways = [(e, t) for e in (1, 2, 4) for t in (1, 2) if room % (e * t) == 0]
    expert, expert_tensor = dice.choice(ways)
    # A cut expert has no biases; beside experts tensor parallelism cuts sequences, as in Megatron.
    return replace(
        base, experts=chosen, expert=expert, expert_tensor=expert_tensor,
        bias=base.bias and expert_tensor == 1, sequence_parallel=base.tensor > 1,
    )  # fmt: skip


def _cut(base: Composition, seed: int) -> Composition:
    """Pack sequences, and give ranks of the data axis to the context axis."""
    dice = random.Random(
        f"context {seed} {base.ranks}"
    )  # of its own: other draws stay as they were
    llama = random.Random(f"llama {seed} {base.ranks}").random() < 0.5
    base = replace(base, packed=dice.random() < 0.3, llama=llama)
    if base.data == 1 or dice.random() < 0.2:
        return base
    room = 2 if base.sequence_parallel and base.tensor == 4 else base.data  # two tokens a rank
    context = dice.choice([c for c in (2, 4) if c <= room])
    local, groups = 4 // base.tensor, base.kv_heads // base.tensor
    deals = local % context == groups % context == 0
    kinds = ["ring", "all-gather", *(["ulysses"] * deals)]
    return replace(
        base, data=base.data // context, context=context, kind=dice.choice(kinds), dropout=0.0
    )


def _scheduled(base: Composition, dice: random.Random) -> Composition:
    if base.pipeline == 1:
        return base
    fits = base.microbatches % base.pipeline == 0
    return replace(
        base, schedule=dice.choice(["gpipe", "1f1b", "zb-h1", *(["interleaved"] * fits)])
    )


def _reduced(base: Composition, dice: random.Random) -> Composition:
    mixed = base.experts and (base.expert, base.expert_tensor, base.tensor) != (1, 1, 1)
    untied = base.pipeline == 1 or not base.tied  # FSDP leaves the sum over two stages to others
    whole = base.schedule != "zb-h1"  # FSDP's gradients are done with backward
    if untied and not mixed and whole and dice.random() < 0.4:
        strategy = dice.choice(["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
        return replace(base, sharded=strategy, fused=False)
    reduction = dice.choice(["mean", "mean", "sum", "tokens"])
    return replace(base, reduction=reduction, main_grads=dice.random() < 0.3)


def _settled(base: Composition) -> Composition:
    """Leave out what torch itself can't: a reentrant recomputation of what comes in frozen."""
    if base.recompute == "reentrant" and base.frozen in ("embedding", "front"):
        return replace(base, recompute="not reentrant")
    return base
