"""How a token's row gets to its experts, and what they make of it gets home.

    gathered   V→V   every rank's rows, for those of its experts to be picked
    dispatch   V→V   each row to the ranks of its experts
    combine    V→V   each expert's rows home again, summed for each token

One of the last two is the other's adjoint, so each is the other's backward. Both go over the joint
axis of expert tensor × expert. All-to-all sends a row to its K experts alone, in uneven pieces,
whose sizes must be exchanged first. All-gather sends every row everywhere, n times the rows, and
one collective of equal pieces; what is left is an all-to-all of a rank with itself, and a
reduce-scatter. A probability travels as a further column of its row, where Megatron's dispatchers
(transformer/moe/token_dispatcher.py) send two collectives, or three.

Rows lie here as they came, by rank and then by expert; an expert puts its own together. Megatron
sorts them between, a copy more each way.

Dimensions: T tokens of this rank, A of all ranks, H hidden, E experts, n ranks, L = E / n; N rows
of tokens that experts are to see, one for each (token, expert); M the same, with one more for each
further rank that shares the expert.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from shardlab.comm import Axis
from shardlab.layers.ops import apply

Moved = tuple[Tensor, Tensor | None]  # rows, and probabilities where they travel too


class Places:
    """Where each row of one batch goes; made of the routing, used four times (twice in backward).

    Args:
        joint: the axis over expert tensor × expert, the former running fastest.
        copies: ranks of it that share an expert.
        chosen_TE: which experts see which token.
        even: every expert has equally many rows of every rank: nobody needs to ask how many.

    Attributes:
        counts: how many rows come: from one rank after the other, and from each for one expert of
            this rank after the other.
    """

    def __init__(self, joint: Axis, copies: int, chosen_TE: Tensor, *, even: bool = False) -> None:
        """Find out how many rows come from each rank for each expert."""
        self._shape, self._row_M = chosen_TE.shape, None
        sent_E = chosen_TE.sum(0)
        sent_nL = sent_E.view(joint.size // copies, 1, -1).expand(-1, copies, -1).flatten(0, 1)
        came_nL = sent_E[:1].expand_as(sent_nL) if even else joint.all_to_all(sent_nL)
        sent, came = torch.stack([sent_nL, came_nL]).tolist()  # one wait for the device
        self.counts: list[int] = [rows for of_rank in came for rows in of_rank]
        rows = [*map(sum, sent)], [*map(sum, came)]
        self._there = partial(together, joint, partial(joint.all_to_all, rows=rows))
        self._back = partial(together, joint, partial(joint.all_to_all, rows=rows[::-1]))
        expert_N, token_N = chosen_TE.t().contiguous().nonzero().unbind(1)
        self._token_N, self._token_M = token_N, token_N
        self._place_M = token_N * chosen_TE.shape[1] + expert_N
        if copies > 1:  # what goes to an expert goes to every rank that shares it
            row_N = torch.arange(len(token_N), device=token_N.device)
            pieces = torch.split(row_N, rows[0][::copies])
            self._row_M = torch.cat([piece for piece in pieces for _ in range(copies)])
            self._token_M, self._place_M = token_N[self._row_M], self._place_M[self._row_M]

    def leave(self, x_TH: Tensor, probs_TE: Tensor | None) -> Moved:
        """Send the rows, each with its probability; return rows_MH and probs_M1 that came."""
        probs_M1 = None if probs_TE is None else probs_TE.take(self._place_M).unsqueeze(1)
        return self._there(x_TH.index_select(0, self._token_M), probs_M1)

    def home(self, rows_MH: Tensor, probs_M1: Tensor | None) -> Moved:
        """Send the rows back where they came from; return x_TH, their sums, and probs_TE."""
        rows_NH, probs_M1 = self._back(rows_MH, probs_M1)
        if self._row_M is not None:  # first those of each expert, of which every rank had a part
            rows_NH = summed(rows_NH, self._row_M, len(self._token_N))
        x_TH = summed(rows_NH, self._token_N, self._shape[0])
        if probs_M1 is None:
            return x_TH, None
        probs_TE = probs_M1.new_zeros(self._shape)
        return x_TH, probs_TE.put_(self._place_M, probs_M1, accumulate=True)


def dispatch(x_TH: Tensor, probs_TE: Tensor, places: Places) -> tuple[Tensor, Tensor]:
    """V→V: return the rows that this rank's experts see, and their weights, in order of arrival."""
    rows_MH, probs_M1 = apply(_Moved, x_TH, probs_TE, places.leave, places.home)
    return rows_MH, probs_M1


def combine(rows_MH: Tensor, places: Places) -> Tensor:
    """V→V: return for each token of this rank the sum of what its experts made of it."""
    return apply(_Moved, rows_MH, None, places.home, places.leave)[0]


def gathered(
    x_TH: Tensor, probs_TE: Tensor, chosen_TE: Tensor, joint: Axis, copies: int
) -> tuple[Tensor, Tensor, Tensor]:
    """V→V: return all ranks' rows, and of this rank's experts their weights and who is chosen."""

    def back(x_AH: Tensor, probs_AE: Tensor) -> Moved:
        if x_AH.dtype != probs_AE.dtype:  # a number's bits, cut into two others, don't add up
            return joint.reduce_scatter(x_AH), joint.reduce_scatter(probs_AE)
        return together(joint, joint.reduce_scatter, x_AH, probs_AE)

    said_TE = probs_TE.masked_fill(~chosen_TE, -1.0)
    gather = partial(together, joint, joint.all_gather)
    x_AH, said_AE = apply(_Moved, x_TH, said_TE, gather, back)
    said_AL = said_AE.chunk(joint.size // copies, 1)[joint.rank // copies]
    return x_AH, said_AL, said_AL >= 0


# ---------------------------------------------------------------------- rows


def together(
    axis: Axis, collective: Callable[[Tensor], Tensor], x_NH: Tensor, probs_NK: Tensor | None
) -> Moved:
    """Send rows with their probabilities behind them, bit by bit, in as many columns as it takes.

    What is sent is contiguous: gloo's all-to-all writes wrong data into a tensor that isn't. Of
    what comes the rows are a view.
    """
    if probs_NK is None or axis.size == 1:
        return collective(x_NH), probs_NK
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
