"""Rope: rotates queries and keys by their positions, at the rates of Llama 3, yarn or none."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log, pi

import torch
from torch import Tensor

from shardlab.grid.rules import refuse

ORIGINAL = "original_max_position_embeddings"
ROPE_KEYS = {
    "linear": {"factor"},
    "yarn": {"factor", ORIGINAL},
    "llama3": {"factor", ORIGINAL, "low_freq_factor", "high_freq_factor"},
}
YARN_KEYS = {"attention_factor", "beta_fast", "beta_slow", "truncate"}  # that it may have too


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


def rotate(
    rates: list[float], magnitude: float, position_S: Tensor, *tensors: Tensor
) -> list[Tensor]:
    """Rotate pairs of features, each by the position times the pair's rate.

    Args:
        rates: of each pair, `GPTConfig.rope_rates`.
        magnitude: what cosines and sines are multiplied by.
        position_S: of each token.
        tensors: of shape [S, B, g, Q, D].
    """
    half = len(rates)
    angle_SD = position_S[:, None] * torch.tensor(rates, dtype=torch.float64)
    cos, sin = (
        (table_SD * magnitude)[:, None, None, None].to(tensors[0])
        for table_SD in (angle_SD.cos(), angle_SD.sin())
    )
    halves = ((x_SBgQD[..., :half], x_SBgQD[..., half:]) for x_SBgQD in tensors)
    return [torch.cat([x * cos - y * sin, y * cos + x * sin], -1) for x, y in halves]
