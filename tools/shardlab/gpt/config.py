"""What a GPT is, whatever it runs on: one dataclass of settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:  # a model without experts doesn't load them
    from shardlab.experts.config import ExpertConfig


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """A GPT: pre-norm blocks, learned positions, exact GELU.

    Attributes:
        layers: blocks.
        hidden: H.
        heads: attention heads.
        kv_heads: key-value groups of grouped-query attention; None for one a head.
        ffn: width of the feed-forward pair; None for 4·H.
        vocab: V, any number of words.
        sequence: the longest sequence, the number of learned positions.
        tie_embeddings: the head uses the word embedding's weight.
        bias: linears have one.
        dropout: probability on embeddings, attention weights and what is added to the residual.
        init_std: of weights; what is added to the residual stream starts smaller.
        dtype: of parameters and activations.
        experts: in place of the feed-forward pair of each block; None for the pair.

    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int | None = None
    ffn: int | None = None
    vocab: int
    sequence: int
    tie_embeddings: bool = True
    bias: bool = True
    dropout: float = 0.0
    init_std: float = 0.02
    dtype: torch.dtype = torch.float32
    experts: ExpertConfig | None = None

    @property
    def groups(self) -> int:
        """Key-value groups: `kv_heads`, or one a head."""
        return self.kv_heads or self.heads

    @property
    def ffn_width(self) -> int:
        """Width of the feed-forward pair: `ffn`, or 4·H."""
        return self.ffn or 4 * self.hidden
