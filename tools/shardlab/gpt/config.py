"""The settings of a GPT in one dataclass, without those of the job that trains it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from shardlab.grid.rules import refuse

if TYPE_CHECKING:  # a model without experts, or without rope, doesn't load them
    from shardlab.experts.expert_config import ExpertConfig
    from shardlab.gpt.rope import RopeScaling

CHOICES = {"norm": ("layer", "rms"), "position": ("learned", "rope"), "mlp": ("gelu", "swiglu")}
# What makes a Llama of a GPT: GPTConfig(**LLAMA, layers=…, …).
LLAMA: dict[str, Any] = {
    "norm": "rms", "position": "rope", "mlp": "swiglu", "bias": False, "tie_embeddings": False,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """A GPT: pre-norm blocks; by default learned positions and exact GELU, as GPT-2.

    Attributes:
        layers: blocks.
        hidden: H.
        heads: attention heads.
        kv_heads: key-value groups of grouped-query attention; None for one a head.
        head_size: D, features of a head; None for H / A.
        qk_norm: each head's queries and keys are normalised before rope, as Qwen3's.
        ffn: F, width of the feed-forward pair; None for 4·H, or under swiglu for 8/3·H, rounded up
            to a multiple of 16, so that its three matrices are as large as the two were.
        vocab: V, any number of words.
        sequence: the longest sequence, the number of learned positions.
        norm: "layer", or "rms": no mean, no bias.
        position: "learned" vectors are added to the embedding; "rope" rotates queries and keys.
        mlp: "gelu", or "swiglu": silu of one linear gates another; of experts too.
        rope_base: of rope's angles: position · base^(−2i / D) for pair i of a head's D features.
        rope_scaling: slower rotations, as Llama 3.1's; None for none.
        norm_eps: added to the variance.
        tie_embeddings: the head uses the word embedding's weight.
        bias: linears have one.
        qkv_bias: the linear of queries, keys and values has one; None for `bias`.
        dropout: probability on embeddings, attention weights and what is added to the residual.
        init_std: of weights; what is added to the residual stream starts smaller.
        dtype: of parameters and activations.
        experts: in place of the feed-forward pair of each block; None for the pair.

    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int | None = None
    head_size: int | None = None
    qk_norm: bool = False
    ffn: int | None = None
    vocab: int
    sequence: int
    tie_embeddings: bool = True
    norm: str = "layer"
    position: str = "learned"
    mlp: str = "gelu"
    rope_base: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    bias: bool = True
    qkv_bias: bool | None = None
    dropout: float = 0.0
    init_std: float = 0.02
    dtype: torch.dtype = torch.float32
    experts: ExpertConfig | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown choice, and heads whose features don't form pairs to rotate."""
        refuse(
            *((getattr(self, name) not in options, f"{name} = {getattr(self, name)!r}: choose "
               f"{options[0]!r} or {options[1]!r}") for name, options in CHOICES.items()),
            (self.head_size is None and self.hidden % self.heads, f"hidden size {self.hidden} is "
             f"not a multiple of {self.heads} heads; choose other heads, or give head_size"),
            (self.rope_scaling and self.rope_base <= 1, f"rope_base = {self.rope_base} is scaled; "
             "give more than 1"),
            (self.position == "rope" and self.head % 2, "rope rotates pairs of a head's features, "
             f"and a head of {self.head} has an odd number; choose other heads, or head_size"),
        )  # fmt: skip

    @property
    def gated(self) -> bool:
        """Whether the feed-forward network has a gate: fc1 is then twice as wide."""
        return self.mlp == "swiglu"

    @property
    def head(self) -> int:
        """Features of a head: `head_size`, or H / A."""
        return self.head_size or self.hidden // self.heads

    @property
    def rope_rates(self) -> list[float]:
        """What each pair of a head's features turns by at each position, in radians."""
        half = self.head // 2
        rates = [self.rope_base ** (-i / half) for i in range(half)]
        return self.rope_scaling.scale(rates, self.rope_base) if self.rope_scaling else rates

    @property
    def groups(self) -> int:
        """Key-value groups: `kv_heads`, or one a head."""
        return self.kv_heads or self.heads

    @property
    def ffn_width(self) -> int:
        """Width of the feed-forward pair: `ffn`, or its default."""
        return self.ffn or (-(-self.hidden // 6) * 16 if self.gated else 4 * self.hidden)
