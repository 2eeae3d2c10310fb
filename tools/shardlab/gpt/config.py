"""The settings of a GPT in one dataclass, without those of the job that trains it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log, pi
from typing import TYPE_CHECKING, Any

import torch

from shardlab.grid.rules import refuse

if TYPE_CHECKING:  # a model without experts doesn't load them
    from shardlab.experts.config import ExpertConfig

CHOICES = {"norm": ("layer", "rms"), "position": ("learned", "rope"), "mlp": ("gelu", "swiglu")}
# What makes a Llama of a GPT: GPTConfig(**LLAMA, layers=…, …).
LLAMA: dict[str, Any] = {
    "norm": "rms", "position": "rope", "mlp": "swiglu", "bias": False, "tie_embeddings": False,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Slower rotations, for sequences longer than a model was first trained on.

    Pair i turns by rate_i at each position. "linear" divides every rate by the factor (Chen et al.,
    arXiv 2306.15595). "llama3" and "yarn" (Peng et al., arXiv 2309.00071) keep the rates of pairs
    that turn often within the original sequence, divide those of pairs that hardly turn, and
    interpolate between them; yarn also multiplies cosines and sines.

    Attributes:
        rope_type: "linear", "llama3" or "yarn".
        factor: of the rates; 1 or more.
        original_max_position_embeddings: the longest sequence before; not for "linear".
        low_freq_factor, high_freq_factor: of "llama3": a pair that turns less often than the first
            is divided whole, one that turns more often than the second is kept.
        beta_slow, beta_fast: the same of "yarn".
        truncate: "yarn" rounds the numbers of these two pairs outwards.
        attention_factor: of "yarn", of cosines and sines; None for 1 + 0.1 · ln(factor).
    """

    rope_type: str
    factor: float
    original_max_position_embeddings: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_slow: float = 1.0
    beta_fast: float = 32.0
    truncate: bool = True
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown type, and numbers that no model was trained with."""
        original, low = self.original_max_position_embeddings, self.low_freq_factor
        refuse(
            (self.rope_type not in ROPE_KEYS, f"rope_type = {self.rope_type!r} isn't supported; "
             f"choose {', '.join(ROPE_KEYS)}, or no scaling"),
            (self.factor < 1, f"factor = {self.factor} of the rates; give 1 or more"),
            (self.rope_type != "linear" and original < 1, f"{self.rope_type} needs "
             f"original_max_position_embeddings, and has {original}"),
            (not 0 < low < self.high_freq_factor, f"low_freq_factor = {low} must be above 0 and "
             f"below high_freq_factor = {self.high_freq_factor}"),
            (not 0 < self.beta_slow <= self.beta_fast, f"beta_slow = {self.beta_slow} must be "
             f"above 0 and at most beta_fast = {self.beta_fast}"),
            (self.attention_factor is not None and self.attention_factor <= 0,
             f"attention_factor = {self.attention_factor}; give more than 0"),
        )  # fmt: skip

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied by."""
        if self.rope_type != "yarn":
            return 1.0
        return self.attention_factor or 1 + 0.1 * log(self.factor)

    def scale(self, rates: list[float], base: float) -> list[float]:
        """Return the slower rates."""
        original, kept = self.original_max_position_embeddings, [0.0] * len(rates)
        if self.rope_type == "llama3":
            low, high = self.low_freq_factor, self.high_freq_factor
            kept = [(original * rate / (2 * pi) - low) / (high - low) for rate in rates]
        if self.rope_type == "yarn":  # the pairs that turn beta_fast times, and beta_slow times
            first, last = (
                len(rates) * log(original / (turns * 2 * pi)) / log(base)
                for turns in (self.beta_fast, self.beta_slow)
            )
            if self.truncate:
                first, last = floor(first), ceil(last)
            first, last = max(first, 0), min(last, 2 * len(rates) - 1)
            kept = [1 - (i - first) / ((last - first) or 0.001) for i in range(len(rates))]
        kept = [min(max(share, 0.0), 1.0) for share in kept]
        return [r * (k + (1 - k) / self.factor) for r, k in zip(rates, kept, strict=True)]


ORIGINAL = "original_max_position_embeddings"
ROPE_KEYS = {
    "linear": {"factor"},
    "yarn": {"factor", ORIGINAL},
    "llama3": {"factor", ORIGINAL, "low_freq_factor", "high_freq_factor"},
}
YARN_KEYS = {"attention_factor", "beta_fast", "beta_slow", "truncate"}  # that it may have too


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
