"""Causal self-attention cut by heads.

Heads don't see each other before the output projection, so a rank computes its own from start to
end: Q, K and V by one column-parallel linear, attention, a row-parallel projection. Rows of the QKV
weight lie group by group, as in Megatron: the queries of a group, then its key, then its value.

    q q k v | q q k v | …      two queries a group
    q k v | q k v | …          plain multi-head attention: one

An equal cut of the rows is then a cut by groups. Fewer groups than ranks would leave ranks without
a key of their own. Megatron gathers every rank's QKV in that case and picks from it
(`get_query_key_value_tensors` in megatron/core/transformer/attention.py); here it is refused.

Rotary positions turn each pair of features (i, i + D/2) of a query and a key by position · rate_i,
so that their product depends on their distance alone (Su et al., arXiv 2104.09864). Sequence
parallelism changes no position, because `qkv` gathers the rows before; under a context axis a
rank's tokens have the positions of its zig-zag share.

Dimensions: S sequence, B batch, H hidden, A heads, G key-value groups, Q = A/G queries a group,
D = H/A unless a model says otherwise; lower case: this rank's share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from shardlab.comm import Axis
from shardlab.gpt.config import GPTConfig
from shardlab.grid.rules import check_tensor
from shardlab.layers.dropout import Dropout
from shardlab.layers.init import DEFAULT, Init
from shardlab.layers.linear import ColumnParallelLinear, RowParallelLinear
from shardlab.layers.norm import NORMS

if TYPE_CHECKING:
    from shardlab.context.parallel import ContextParallel


class Attention(nn.Module):
    """Causal multi-head or grouped-query attention over the tensor axis.

    Args:
        config: of the model.
        name: of this layer in the whole model.
        axis: the tensor axis; it divides A and G.
        sequence_parallel: x arrives and leaves cut along S.
        dropout_seed: of the run; for dropout on attention weights.
        init: how parameters start.
        context: where sequences are cut over ranks, how attention sees over the cuts; S below is
            then this rank's share.

    Shapes: x [S, B, H] -> [S, B, H], or [s, B, H] both; qkv.weight [(A + 2G)·D / ranks, H];
    proj.weight [H, A·D / ranks]; q_norm.weight and k_norm.weight [D], whose gradients are partial,
    because a rank's heads are a part of all.

    Raises:
        ValueError: A does not divide H, the axis A or G, or G does not divide A; or Ulysses can't
            deal out either.

    """

    def __init__(
        self, config: GPTConfig, name: str, *, axis: Axis, sequence_parallel: bool = False,
        dropout_seed: int = 0, init: Init = DEFAULT, context: ContextParallel | None = None,
    ) -> None:  # fmt: skip
        """Make the two linears."""
        super().__init__()
        self.context = context
        hidden, heads, groups = config.hidden, config.heads, config.groups
        self.head = config.head
        check_tensor(axis.size, hidden=heads * self.head, heads=heads, kv_heads=groups)
        self.groups = groups // axis.size
        self.queries = heads // groups
        self.rotate: Callable[..., list[Tensor]] | None = None
        if config.position == "rope":
            from shardlab.gpt.rope import rotate

            magnitude = config.rope_scaling.magnitude if config.rope_scaling else 1.0
            self.rotate = partial(rotate, config.rope_rates, magnitude)
        self.q_norm, self.k_norm = (
            NORMS[config.norm](self.head, eps=config.norm_eps, init=init,
                               sequence_parallel=axis.size > 1) if config.qk_norm else None
            for _ in "qk"
        )  # fmt: skip
        if context:
            context.check_heads(self.groups * self.queries, self.groups)
        self.qkv = ColumnParallelLinear(
            hidden, (heads + 2 * groups) * self.head, axis=axis,
            bias=config.bias if config.qkv_bias is None else config.qkv_bias,
            sequence_parallel=sequence_parallel,
            name=f"{name}.qkv", init=init,
        )  # fmt: skip
        self.proj = RowParallelLinear(
            heads * self.head, hidden, axis=axis, bias=config.bias,
            sequence_parallel=sequence_parallel,
            name=f"{name}.proj", init=init.scaled_for_depth(config.layers),
        )  # fmt: skip
        self.dropout = Dropout(
            config.dropout, axis=axis, sharded=True, name=f"{name}.dropout", seed=dropout_seed
        )

    def forward(self, x_sBH: Tensor, documents_BS: Tensor | None = None) -> Tensor:
        """Return the projected context; with documents, a token sees its own alone."""
        qkv_SBf = self.qkv(x_sBH)
        qkv_SBgQD = qkv_SBf.unflatten(-1, (self.groups, self.queries + 2, self.head))
        q, k, v = qkv_SBgQD.split([self.queries, 1, 1], 3)
        if self.q_norm and self.k_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rotate:
            tokens = len(q)
            position_S = self.context.positions(tokens) if self.context else torch.arange(tokens)
            q, k = self.rotate(position_S, q, k)
            v = v.contiguous()  # else backward keeps all of qkv for it
        attend = self.context.attend if self.context else self._attend
        context_BaSD = attend(_heads_first(q), _heads_first(k), _heads_first(v), documents_BS)
        out_sBH: Tensor = self.proj(context_BaSD.permute(2, 0, 1, 3).flatten(2))
        return out_sBH

    def _attend(
        self, q_BaSD: Tensor, k_BgSD: Tensor, v_BgSD: Tensor, documents_BS: Tensor | None
    ) -> Tensor:
        mask = None
        if documents_BS is not None:
            from shardlab.context.documents import document_mask

            mask = document_mask(documents_BS)
        fused = partial(
            scaled_dot_product_attention, attn_mask=mask, is_causal=mask is None,
            enable_gqa=self.queries > 1,
        )  # fmt: skip
        if self.training and self.dropout.p > 0:
            return self.dropout.run_fused(fused, q_BaSD, k_BgSD, v_BgSD)
        return fused(q_BaSD, k_BgSD, v_BgSD)


def _heads_first(x_SBgQD: Tensor) -> Tensor:
    """[S, B, g, Q, D] -> [B, g·Q, S, D]; no copy where Q = 1."""
    return x_SBgQD.flatten(2, 3).permute(1, 2, 0, 3)
