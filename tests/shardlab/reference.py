"""The unsharded GPT that shardlab must equal: plain torch.nn, written without shardlab.

With `norm="rms"`, `position="rope"` and `mlp="swiglu"` it is a Llama, written with complex numbers
and torch.nn.RMSNorm. It takes the same whole weights by the same names. Attention is written out
with a mask and torch's own layers do the rest, so that it shares no code with what it judges. QKV
rows lie group by group: the queries of a group, its key, its value.

Dimensions: B batch, S sequence, H hidden, V vocabulary, G groups, Q queries a group, D head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

GPT2 = {"norm": "layer", "position": "learned", "mlp": "gelu"}


class ReferenceAttention(nn.Module):
    def __init__(
        self, hidden: int, heads: int, groups: int, bias: bool, rope: bool = False
    ) -> None:
        super().__init__()
        self.rope = rope
        self.groups, self.head = groups, hidden // heads
        self.qkv = nn.Linear(hidden, (heads + 2 * groups) * self.head, bias=bias)
        self.proj = nn.Linear(hidden, hidden, bias=bias)

    def forward(self, x_BSH: Tensor) -> Tensor:
        batch, length, hidden = x_BSH.shape
        qkv = self.qkv(x_BSH).reshape(batch, length, self.groups, -1, self.head)  # [B,S,G,Q+2,D]
        q, k, v = qkv[..., :-2, :], qkv[..., -2, :], qkv[..., -1, :]
        if self.rope:
            q, k = turn(q), turn(k)
        scores = torch.einsum("bsgqd,btgd->bgqst", q, k) / math.sqrt(self.head)
        seen = torch.ones(length, length, dtype=torch.bool, device=x_BSH.device).tril()
        weights = torch.where(seen, scores, -torch.inf).softmax(-1)
        context = torch.einsum("bgqst,btgd->bsgqd", weights, v)
        return self.proj(context.reshape(batch, length, hidden))


def turn(x_BSxD: Tensor) -> Tensor:
    """Multiply x_i + j·x_(i + D/2) by e^(j · position · 10,000^(−2i / D))."""
    half, tokens = x_BSxD.shape[-1] // 2, x_BSxD.shape[1]
    rates = 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(tokens, dtype=torch.float64)[:, None] * rates
    factor = torch.polar(torch.ones_like(angle), angle)
    factor = factor.view(1, tokens, *[1] * (x_BSxD.dim() - 3), half)
    turned = torch.complex(x_BSxD[..., :half], x_BSxD[..., half:]) * factor
    return torch.cat([turned.real, turned.imag], -1)


class ReferenceMLP(nn.Module):
    def __init__(self, hidden: int, ffn: int, bias: bool, gated: bool = False) -> None:
        super().__init__()
        self.gated = gated
        self.fc1 = nn.Linear(hidden, ffn * (1 + gated), bias=bias)
        self.fc2 = nn.Linear(ffn, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc1(x)
        if self.gated:  # rows in pairs: gate, what it gates
            return self.fc2(nn.functional.silu(y[..., 0::2]) * y[..., 1::2])
        return self.fc2(nn.functional.gelu(y))


class ReferenceBlock(nn.Module):
    def __init__(
        self,
        hidden: int,
        heads: int,
        groups: int,
        ffn: int,
        bias: bool,
        kind: Mapping[str, str] = GPT2,
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = norm_of(hidden, kind), norm_of(hidden, kind)
        self.attention = ReferenceAttention(hidden, heads, groups, bias, kind["position"] == "rope")
        self.mlp = ReferenceMLP(hidden, ffn, bias, kind["mlp"] == "swiglu")

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def norm_of(hidden: int, kind: Mapping[str, str]) -> nn.Module:
    return nn.RMSNorm(hidden, eps=1e-5) if kind["norm"] == "rms" else nn.LayerNorm(hidden)


class ReferenceGPT(nn.Module):
    """`forward` gives logits [B, S, V], `loss` the mean cross-entropy over all tokens."""

    def __init__(
        self, *, layers: int, hidden: int, heads: int, vocab: int, sequence: int,
        kv_heads: int | None = None, ffn: int | None = None, tie_embeddings: bool = True,
        bias: bool = True, dtype: torch.dtype = torch.float64, norm: str = "layer",
        position: str = "learned", mlp: str = "gelu",
    ) -> None:  # fmt: skip
        super().__init__()
        kind = {"norm": norm, "position": position, "mlp": mlp}
        self.word_embedding = nn.Embedding(vocab, hidden)
        self.position_embedding = None
        if position == "learned":
            self.position_embedding = nn.Parameter(torch.empty(sequence, hidden))
        self.layers = nn.ModuleList(
            ReferenceBlock(hidden, heads, kv_heads or heads, ffn or 4 * hidden, bias, kind)
            for _ in range(layers)
        )
        self.final_norm = norm_of(hidden, kind)
        self.head = nn.Linear(hidden, vocab, bias=False)
        if tie_embeddings:
            self.head.weight = self.word_embedding.weight
        self.to(dtype)

    def load(self, whole: Mapping[str, Tensor]) -> ReferenceGPT:
        """Copy whole weights in; every name must fit, both ways."""
        names = dict(self.named_parameters())
        assert names.keys() == whole.keys(), names.keys() ^ whole.keys()
        with torch.no_grad():
            for name, parameter in names.items():
                assert parameter.shape == whole[name].shape, name
                parameter.copy_(whole[name])
        return self

    def embed(self, tokens_BS: Tensor) -> Tensor:
        x_BSH = self.word_embedding(tokens_BS)
        if self.position_embedding is None:
            return x_BSH
        return x_BSH + self.position_embedding[: tokens_BS.shape[1]]

    def from_embedded(self, x_BSH: Tensor) -> Tensor:
        for block in self.layers:
            x_BSH = block(x_BSH)
        return self.head(self.final_norm(x_BSH))

    def forward(self, tokens_BS: Tensor) -> Tensor:
        return self.from_embedded(self.embed(tokens_BS))

    def loss(self, logits_BSV: Tensor, targets_BS: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits_BSV.flatten(0, 1), targets_BS.flatten())


def shapes(**settings: object) -> dict[str, torch.Size]:
    """Names and shapes of the whole parameters."""
    with torch.device("meta"):
        return {n: p.shape for n, p in ReferenceGPT(**settings).named_parameters()}  # type: ignore[arg-type]


def random_weights(seed: int = 0, **settings: object) -> dict[str, Tensor]:
    """Whole fp64 weights with no zeros and no ones in them: every bias and norm weight counts."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes(**settings).items():
        centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        scale = 0.3 if len(shape) > 1 else 0.1
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        weights[name] = centre + scale * noise
    return weights


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """The largest difference over the largest expected value."""
    actual, expected = actual.detach().double(), expected.detach().double()
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-300))
