"""Attention over a context axis: each rank has its zig-zag share of every sequence.

    kind        what crosses the axis                          forward         backward
    ring        blocks of keys and values, rank to rank        n − 1 sends     2 (n − 1)
    all-gather  the same blocks, all at once                   all-gather      and a reduce-scatter
    ulysses     heads for tokens: whole sequences of A/n heads 4 all-to-alls   4

Everything else in a GPT looks at one token at a time, and needs no more than to know its position.

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
from shardlab.context import piece, zigzag
from shardlab.context.documents import seen_in
from shardlab.context.rounds import Gathered, Ring
from shardlab.layers import ops

ROUNDS: dict[str, type[Ring | Gathered]] = {"ring": Ring, "all-gather": Gathered}


@dataclass(frozen=True)
class ContextParallel:
    """How a model's sequences are cut, and how its attention sees over the cuts.

    Args:
        axis: the context axis.
        kind: "ring", "all-gather" or "ulysses".

    Raises:
        ValueError: there is no such kind.
    """

    axis: Axis
    kind: str = "ring"

    def __post_init__(self) -> None:
        """Refuse what is none of the three."""
        if self.kind not in (*ROUNDS, "ulysses"):
            raise ValueError(
                f"context parallelism of kind {self.kind!r}; choose {', '.join(ROUNDS)} or ulysses"
            )

    def demand_heads(self, heads: int, groups: int) -> None:
        """Refuse heads, or key-value groups, of a tensor rank that this kind can't deal out.

        Raises:
            ValueError: says what would do.
        """
        zigzag.check_heads(self.kind, self.axis.size, heads, "heads")
        zigzag.check_heads(self.kind, self.axis.size, groups, "key-value groups")

    def positions(self, share: int) -> Tensor:
        """Return where in their sequence this rank's s tokens stand: [s].

        Raises:
            ValueError: s is odd, as one token a rank is, and so not two chunks.
        """
        return zigzag.positions(share * self.axis.size, self.axis.rank, self.axis.size)

    def own(self, x_BS: Tensor) -> Tensor:
        """Return this rank's tokens of whole sequences [B, S]: [B, s].

        Raises:
            ValueError: the sequence does not form two chunks a rank.
        """
        return x_BS[:, zigzag.positions(x_BS.shape[1], self.axis.rank, self.axis.size)]

    def attend(
        self, q_BAsD: Tensor, k_BGsD: Tensor, v_BGsD: Tensor, documents_BS: Tensor | None = None
    ) -> Tensor:
        """Return causal attention of this rank's queries to all keys: [B, A, s, D].

        Args:
            q_BAsD, k_BGsD, v_BGsD: of this rank's tokens; a group's queries lie side by side.
            documents_BS: of packed sequences, the document of each token of the *whole* sequence,
                the same on every rank; a token sees its own document alone.
        """
        whole = q_BAsD.shape[2] * self.axis.size
        zigzag.check_sequence(whole, self.axis.size)
        if documents_BS is not None and documents_BS.shape != (q_BAsD.shape[0], whole):
            raise ValueError(
                f"documents of shape {tuple(documents_BS.shape)} for {q_BAsD.shape[0]} sequences "
                f"of {whole} tokens: give every token of the whole sequence its document"
            )
        if self.kind == "ulysses":
            return _ulysses(q_BAsD, k_BGsD, v_BGsD, self.axis, documents_BS)
        way = _Way(ROUNDS[self.kind], self.axis, documents_BS)
        return ops.apply(_InRounds, q_BAsD, torch.stack([k_BGsD, v_BGsD]), way)


def _ulysses(
    q_BAsD: Tensor, k_BGsD: Tensor, v_BGsD: Tensor, axis: Axis, documents_BS: Tensor | None
) -> Tensor:
    """Whole sequences of some heads (Jacobs et al., "DeepSpeed Ulysses", arXiv 2309.14509)."""
    tokens = q_BAsD.shape[2] * axis.size
    here = zigzag.order(tokens, axis.size).to(q_BAsD.device)
    q_BaSD, k_BgSD, v_BgSD = (
        ops.all_to_all(x, axis, 1, 2).index_select(2, here.argsort())
        for x in (q_BAsD, k_BGsD, v_BGsD)
    )
    seen = None if documents_BS is None else seen_in(documents_BS)
    out_BaSD = scaled_dot_product_attention(
        q_BaSD, k_BgSD, v_BgSD, attn_mask=seen, is_causal=seen is None,
        enable_gqa=q_BaSD.shape[1] > k_BgSD.shape[1],
    )  # fmt: skip
    return ops.all_to_all(out_BaSD.index_select(2, here), axis, 2, 1)


@dataclass(frozen=True)
class _Way:
    """What one attention is given beside tensors that want a gradient."""

    round: type[Ring | Gathered]
    axis: Axis
    documents: Tensor | None

    def seen(self, owner: int, length: int) -> tuple[slice, slice, dict[str, Any]]:
        """Return which queries see which keys of a block, and how."""
        here, ranks = self.axis.rank, self.axis.size
        rows, keys, causal = zigzag.seen(here, owner, length)
        if self.documents is None:
            return rows, keys, {"causal": causal, "seen": None}
        mine, theirs = (zigzag.positions(length * ranks, r, ranks) for r in (here, owner))
        return (
            rows,
            keys,
            {"causal": False, "seen": seen_in(self.documents, mine[rows], theirs[keys])},
        )


class _InRounds(torch.autograd.Function):
    """Attention to one block after another; backward goes round again, and keeps no block."""

    @staticmethod
    def forward(ctx: Any, q_BAsD: Tensor, kv_2BGsD: Tensor, way: _Way) -> Tensor:
        ctx.way = way
        out_BAsD = lse_BAs = torch.empty(0)
        for owner, block in way.round(way.axis).blocks(kv_2BGsD):
            rows, keys, how = way.seen(owner, q_BAsD.shape[2])
            part, lse = piece.attend(q_BAsD[:, :, rows], *block[:, :, :, keys], **how)
            if owner == way.axis.rank:  # the first; sums are kept in fp32 at least
                wide = torch.promote_types(part.dtype, torch.float32)
                out_BAsD, lse_BAs = part.to(wide, copy=True), lse.clone()
            else:
                piece.merge(out_BAsD[:, :, rows], lse_BAs[:, :, rows], part, lse)
        out_BAsD = out_BAsD.to(q_BAsD.dtype)
        ctx.save_for_backward(q_BAsD, kv_2BGsD, out_BAsD, lse_BAs)
        return out_BAsD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BAsD: Tensor) -> tuple[Tensor, Tensor, None]:
        (q_BAsD, kv_2BGsD, out_BAsD, lse_BAs), way = ctx.saved_tensors, ctx.way
        home = way.round(way.axis)
        dq_BAsD = torch.zeros_like(grad_BAsD)
        for owner, block in home.blocks(kv_2BGsD):
            rows, keys, how = way.seen(owner, q_BAsD.shape[2])
            whole = out_BAsD[:, :, rows], lse_BAs[:, :, rows]
            dq, *dkv = piece.gradients(
                grad_BAsD[:, :, rows], q_BAsD[:, :, rows], [*block[:, :, :, keys]], whole, **how
            )
            dq_BAsD[:, :, rows] += dq
            dkv_2BGsD = torch.zeros_like(kv_2BGsD)
            dkv_2BGsD[:, :, :, keys] = torch.stack(dkv)
            home.give(owner, dkv_2BGsD)
        return dq_BAsD, home.take(), None
