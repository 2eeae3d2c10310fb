"""How a token's row gets to its experts, and what they make of it gets home.

    dispatch   V→V   each row to the ranks of its experts
    combine    V→V   each expert's rows home again, summed for each token

One is the other's adjoint, so each is the other's backward. Both go over the joint axis of expert
tensor × expert. All-gather sends every row everywhere: n times the rows, and one collective of
equal pieces. All-to-all sends a row to its K experts alone, in uneven pieces, whose sizes must be
exchanged first. A probability travels as a further column of its row, where Megatron's dispatchers
(transformer/moe/token_dispatcher.py) send two collectives, or three.

Rows lie here as they came, by rank and then by expert; an expert puts its own together. Megatron
sorts them between, a copy more each way.

Dimensions: T tokens of this rank, H hidden, E experts, L = E / ranks of this rank; A tokens of all
ranks; N rows of tokens that an expert is to see, one for each (token, expert); M the same, and one
for each rank that shares the expert.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from shardlab.comm import Axis
from shardlab.comm.pending import Rows
from shardlab.layers.ops import apply

Moved = tuple[Tensor, Tensor | None]  # rows, and probabilities where they travel too


class Places:
    """Where each row of one batch goes; made of the routing, used four times (twice in backward).

    `leave` returns what arrives here, rows_MH and their probs_M1; `home` the sums x_TH of what went
    out as rows_MH, and probs_TE.

    Args:
        joint: the axis over expert tensor × expert, the former running fastest.
        copies: ranks of it that share an expert.
        chosen_TE: which experts see which token.

    Attributes:
        counts: how many rows came, once `leave` was called: from one rank after the other, and from
            each for one expert after the other. All-gather has sorted them: as from one rank.
    """

    def __init__(self, joint: Axis, copies: int, chosen_TE: Tensor) -> None:
        self.joint, self.copies, self.chosen_TE = joint, copies, chosen_TE
        self.local = chosen_TE.shape[1] * copies // joint.size
        self.counts: list[int]
        self._token_M: Tensor  # of each row: whose it is, of this rank's tokens or of all


class AllGather(Places):
    """Every rank sees every row, and picks its experts'."""

    def leave(self, x_TH: Tensor, probs_TE: Tensor | None) -> Moved:
        """Gather all rows, each with its probabilities; −1 says that an expert was not chosen."""
        if probs_TE is None:
            return self.joint.all_gather(x_TH).index_select(0, self._token_M), None
        said_TE = probs_TE.masked_fill(~self.chosen_TE, -1.0)
        x_AH, said_AE = together(self.joint.all_gather, x_TH, said_TE)
        said_LA = self._mine(said_AE).contiguous()
        self._chosen_LA = said_LA >= 0
        self._token_M = self._chosen_LA.nonzero()[:, 1]
        self.counts = self._chosen_LA.sum(1).tolist()
        return x_AH.index_select(0, self._token_M), said_LA[self._chosen_LA].unsqueeze(1)

    def home(self, rows_MH: Tensor, probs_M1: Tensor | None) -> Moved:
        """Put the rows in their places, and sum over the ranks."""
        x_AH = summed(rows_MH, self._token_M, self._chosen_LA.shape[1])
        if probs_M1 is None:
            return self.joint.reduce_scatter(x_AH), None
        probs_AE = probs_M1.new_zeros(len(x_AH), self.chosen_TE.shape[1])
        self._mine(probs_AE)[self._chosen_LA] = probs_M1.squeeze(1)
        if x_AH.dtype != probs_AE.dtype:  # a number's bits, cut into two others, don't add up
            return self.joint.reduce_scatter(x_AH), self.joint.reduce_scatter(probs_AE)
        return together(self.joint.reduce_scatter, x_AH, probs_AE)

    def _mine(self, x_AE: Tensor) -> Tensor:
        """Return the columns of this rank's experts, as rows: a view."""
        return x_AE.t().narrow(0, self.joint.rank // self.copies * self.local, self.local)


class AllToAll(Places):
    """A row goes to the ranks of its experts alone.

    Args:
        joint, copies, chosen_TE: as above.
        even: every expert has equally many rows of every rank: nobody needs to ask how many.
    """

    def __init__(self, joint: Axis, copies: int, chosen_TE: Tensor, *, even: bool) -> None:
        """Find out how many rows come from each rank for each expert."""
        super().__init__(joint, copies, chosen_TE)
        sent_E = chosen_TE.sum(0)
        sent_nL = sent_E.view(-1, 1, self.local).expand(-1, copies, -1).reshape(joint.size, -1)
        came_nL = sent_E[:1].expand_as(sent_nL) if even else joint.all_to_all(sent_nL)
        self.counts = came_nL.flatten().tolist()
        self._rows = sent_nL.sum(1).tolist(), came_nL.sum(1).tolist()
        expert_N, token_N = chosen_TE.t().contiguous().nonzero().unbind(1)
        self._token_N, self._token_M = token_N, token_N
        self._place_M = token_N * chosen_TE.shape[1] + expert_N
        if copies > 1:  # what goes to an expert goes to every rank that shares it
            row_N = torch.arange(len(token_N), device=token_N.device)
            pieces = torch.split(row_N, self._rows[0][::copies])
            self._row_M = torch.cat([piece for piece in pieces for _ in range(copies)])
            self._token_M, self._place_M = token_N[self._row_M], self._place_M[self._row_M]

    def leave(self, x_TH: Tensor, probs_TE: Tensor | None) -> Moved:
        """Send the rows, each with its probability."""
        rows_MH = x_TH.index_select(0, self._token_M)
        probs_M1 = None if probs_TE is None else probs_TE.take(self._place_M).unsqueeze(1)
        return self._exchanged(rows_MH, probs_M1, self._rows)

    def home(self, rows_MH: Tensor, probs_M1: Tensor | None) -> Moved:
        """Send the rows back where they came from, and sum those of each token."""
        rows_NH, probs_M1 = self._exchanged(rows_MH, probs_M1, self._rows[::-1])
        if self.copies > 1:  # first those of each expert, of which every rank had a part
            rows_NH = summed(rows_NH, self._row_M, len(self._token_N))
        x_TH = summed(rows_NH, self._token_N, len(self.chosen_TE))
        if probs_M1 is None:
            return x_TH, None
        probs_TE = probs_M1.new_zeros(self.chosen_TE.shape)
        return x_TH, probs_TE.put_(self._place_M, probs_M1, accumulate=True)

    def _exchanged(self, x_MH: Tensor, probs_M1: Tensor | None, rows: Rows) -> Moved:
        if probs_M1 is None or self.joint.size == 1:
            return self.joint.all_to_all(x_MH, rows=rows), probs_M1
        return together(partial(self.joint.all_to_all, rows=rows), x_MH, probs_M1)


def dispatch(x_TH: Tensor, probs_TE: Tensor, places: AllGather | AllToAll) -> tuple[Tensor, Tensor]:
    """V→V: return the rows that this rank's experts see, and their weights, in order of arrival."""
    rows_MH, probs_M1 = apply(_Moved, x_TH, probs_TE, places.leave, places.home)
    return rows_MH, probs_M1


def combine(rows_MH: Tensor, places: AllGather | AllToAll) -> Tensor:
    """V→V: return for each token of this rank the sum of what its experts made of it."""
    return apply(_Moved, rows_MH, None, places.home, places.leave)[0]


# ---------------------------------------------------------------------- rows


def together(
    collective: Callable[[Tensor], Tensor], x_NH: Tensor, probs_NK: Tensor
) -> tuple[Tensor, Tensor]:
    """Send rows with their probabilities behind them, bit by bit, in as many columns as it takes.

    What is sent is contiguous: gloo's all-to-all writes wrong data into a tensor that isn't. Of
    what comes the rows are a view.
    """
    hidden, columns = x_NH.shape[1], probs_NK.shape[1] * probs_NK.itemsize // x_NH.itemsize
    bits = probs_NK.reshape(-1).view(x_NH.dtype).view(-1, columns)
    came = collective(torch.cat([x_NH, bits], 1))
    return came[:, :hidden], came[:, hidden:].contiguous().view(probs_NK.dtype)


def summed(rows_NH: Tensor, token_N: Tensor, tokens: int) -> Tensor:
    """Return the sum of each token's rows, in the order in which they lie."""
    return rows_NH.new_zeros(tokens, rows_NH.shape[1]).index_add_(0, token_N, rows_NH)


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, probs: Tensor | None, go: Any, back: Any) -> Any:
        ctx.back = back
        return go(rows, probs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, rows: Tensor, probs: Tensor | None) -> Any:
        return *ctx.back(rows.contiguous(), probs), None, None
