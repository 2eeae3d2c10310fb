"""Attention over a context axis: each rank has its zig-zag share of every sequence.

    kind        what is sent over the axis                     forward         backward
    ring        blocks of keys and values, rank to rank        n − 1 sends     2 (n − 1)
    all-gather  the same blocks, all at once                   all-gather      and a reduce-scatter
    ulysses     tokens for heads: whole sequences of A/n heads 4 all-to-alls   4

All other layers of a GPT compute each token by itself and only need to know its position.

Dimensions: S sequence, s this rank's share, B batch, A heads, G key-value groups, D head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from shardlab.comm import Axis
from shardlab.context import block_attention, zigzag
from shardlab.context.documents import document_mask
from shardlab.context.rounds import AllGather, Ring
from shardlab.layers import ops

ROUNDS: dict[str, type[Ring | AllGather]] = {"ring": Ring, "all-gather": AllGather}


@dataclass(frozen=True)
class ContextParallel:
    """How a model's sequences are cut over ranks, and how its attention communicates.

    Args:
        axis: the context axis.
        kind: "ring", "all-gather" or "ulysses".

    Raises:
        ValueError: there is no such kind.
    """

    axis: Axis
    kind: str = "ring"

    def __post_init__(self) -> None:
        """Refuse an unknown kind."""
        if self.kind not in (*ROUNDS, "ulysses"):
            raise ValueError(
                f"context parallelism of kind {self.kind!r}; choose {', '.join(ROUNDS)} or ulysses"
            )

    def check_heads(self, heads: int, groups: int) -> None:
        """Refuse heads, or key-value groups, of a tensor rank that this kind can't distribute.

        Raises:
            ValueError: says which numbers work.
        """
        zigzag.check_heads(self.kind, self.axis.size, heads, "heads")
        zigzag.check_heads(self.kind, self.axis.size, groups, "key-value groups")

    def positions(self, share: int) -> Tensor:
        """Return the positions of this rank's s tokens in their sequence: [s].

        Raises:
            ValueError: s is odd, so that it doesn't form two chunks.
        """
        return zigzag.positions(share * self.axis.size, self.axis.rank, self.axis.size)

    def shard(self, x_BS: Tensor) -> Tensor:
        """Return this rank's tokens of whole sequences [B, S]: [B, s].

        Raises:
            ValueError: the sequence does not form two chunks a rank.
        """
        return x_BS[:, zigzag.positions(x_BS.shape[1], self.axis.rank, self.axis.size)]

    own = shard  # its name before 0.4

    def attend(
        self, q_BAsD: Tensor, k_BGsD: Tensor, v_BGsD: Tensor, documents_BS: Tensor | None = None
    ) -> Tensor:
        """Return causal attention of this rank's queries to all keys: [B, A, s, D].

        Args:
            q_BAsD, k_BGsD, v_BGsD: of this rank's tokens; a group's queries are adjacent heads.
            documents_BS: for packed sequences, the document of each token of the *whole* sequence,
                the same on every rank; a token then sees only its own document.
        """
        tokens = q_BAsD.shape[2] * self.axis.size
        zigzag.check_sequence(tokens, self.axis.size)
        if documents_BS is not None and documents_BS.shape != (q_BAsD.shape[0], tokens):
            raise ValueError(
                f"documents of shape {tuple(documents_BS.shape)} for {q_BAsD.shape[0]} sequences "
                f"of {tokens} tokens: give every token of the whole sequence its document"
            )
        if self.kind == "ulysses":
            return _ulysses(q_BAsD, k_BGsD, v_BGsD, self.axis, documents_BS)
        plan = _AttentionPlan(ROUNDS[self.kind], self.axis, documents_BS)
        return ops.apply(_BlockwiseAttention, q_BAsD, torch.stack([k_BGsD, v_BGsD]), plan)


def _ulysses(
    q_BAsD: Tensor, k_BGsD: Tensor, v_BGsD: Tensor, axis: Axis, documents_BS: Tensor | None
) -> Tensor:
    """Attend with whole sequences of some heads.

    Jacobs et al., "DeepSpeed Ulysses", arXiv 2309.14509.
    """
    tokens = q_BAsD.shape[2] * axis.size
    order = zigzag.order(tokens, axis.size).to(q_BAsD.device)
    q_BaSD, k_BgSD, v_BgSD = (
        ops.all_to_all(x, axis, 1, 2).index_select(2, order.argsort())
        for x in (q_BAsD, k_BGsD, v_BGsD)
    )
    mask = None if documents_BS is None else document_mask(documents_BS)
    out_BaSD = scaled_dot_product_attention(
        q_BaSD, k_BgSD, v_BgSD, attn_mask=mask, is_causal=mask is None,
        enable_gqa=q_BaSD.shape[1] > k_BgSD.shape[1],
    )  # fmt: skip
    return ops.all_to_all(out_BaSD.index_select(2, order), axis, 2, 1)


@dataclass(frozen=True)
class _AttentionPlan:
    """The arguments of one attention that are no tensors with a gradient."""

    round: type[Ring | AllGather]
    axis: Axis
    documents: Tensor | None

    def visible(self, owner: int, length: int) -> tuple[slice, slice, dict[str, Any]]:
        """Return the queries that see keys of a block, those keys, and the mask as keywords."""
        rank, ranks = self.axis.rank, self.axis.size
        rows, keys, causal = zigzag.visible_slices(rank, owner, length)
        if self.documents is None:
            return rows, keys, {"causal": causal, "mask": None}
        query_positions, key_positions = (
            zigzag.positions(length * ranks, r, ranks) for r in (rank, owner)
        )
        return (
            rows,
            keys,
            {
                "causal": False,
                "mask": document_mask(self.documents, query_positions[rows], key_positions[keys]),
            },
        )


class _BlockwiseAttention(torch.autograd.Function):
    """Attention to one block after another; backward receives all blocks again and stores none."""

    @staticmethod
    def forward(ctx: Any, q_BAsD: Tensor, kv_2BGsD: Tensor, plan: _AttentionPlan) -> Tensor:
        ctx.plan = plan
        out_BAsD = lse_BAs = torch.empty(0)
        for owner, block in plan.round(plan.axis).blocks(kv_2BGsD):
            rows, keys, options = plan.visible(owner, q_BAsD.shape[2])
            part, lse = block_attention.attend(q_BAsD[:, :, rows], *block[:, :, :, keys], **options)
            if owner == plan.axis.rank:  # the first; sums are kept in fp32 at least
                wide = torch.promote_types(part.dtype, torch.float32)
                out_BAsD, lse_BAs = part.to(wide, copy=True), lse.clone()
            else:
                block_attention.merge(out_BAsD[:, :, rows], lse_BAs[:, :, rows], part, lse)
        out_BAsD = out_BAsD.to(q_BAsD.dtype)
        ctx.save_for_backward(q_BAsD, kv_2BGsD, out_BAsD, lse_BAs)
        return out_BAsD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BAsD: Tensor) -> tuple[Tensor, Tensor, None]:
        (q_BAsD, kv_2BGsD, out_BAsD, lse_BAs), plan = ctx.saved_tensors, ctx.plan
        rounds = plan.round(plan.axis)
        dq_BAsD = torch.zeros_like(grad_BAsD)
        for owner, block in rounds.blocks(kv_2BGsD):
            rows, keys, options = plan.visible(owner, q_BAsD.shape[2])
            whole = out_BAsD[:, :, rows], lse_BAs[:, :, rows]
            dq, *dkv = block_attention.gradients(
                grad_BAsD[:, :, rows], q_BAsD[:, :, rows], [*block[:, :, :, keys]], whole, **options
            )
            dq_BAsD[:, :, rows] += dq
            dkv_2BGsD = torch.zeros_like(kv_2BGsD)
            dkv_2BGsD[:, :, :, keys] = torch.stack(dkv)
            rounds.add_gradient(owner, dkv_2BGsD)
        return dq_BAsD, rounds.collect_gradient(), None
