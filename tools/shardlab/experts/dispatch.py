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

Collective = Callable[[Tensor], Tensor]
Moved = tuple[Tensor, ...]  # rows, and probabilities where they travel too


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
        sent_E = chosen_TE.sum(0)
        sent_nL = sent_E.view(joint.size // copies, 1, -1).expand(-1, copies, -1).flatten(0, 1)
        asked = None if even else joint.start("all_to_all", sent_nL)  # on its way while we look
        expert_N, self._token_N = chosen_TE.t().contiguous().nonzero().unbind(1)
        self._place_N = self._token_N * chosen_TE.shape[1] + expert_N
        came_nL = asked.wait() if asked else sent_E[:1].expand_as(sent_nL)
        sent, came = torch.stack([sent_nL, came_nL]).tolist()  # one wait for the device
        self.counts: list[int] = [rows for of_rank in came for rows in of_rank]
        rows = [*map(sum, sent)], [*map(sum, came)]
        self._there = partial(together, joint, partial(joint.all_to_all, rows=rows))
        self._back = partial(together, joint, partial(joint.all_to_all, rows=rows[::-1]))
        self._tokens, self._row_M = len(chosen_TE), None
        if copies > 1:  # what goes to an expert goes to every rank that shares it
            row_N = torch.arange(len(expert_N), device=expert_N.device)
            pieces = torch.split(row_N, rows[0][::copies])
            self._row_M = torch.cat([piece for piece in pieces for _ in range(copies)])

    def dispatch(self, x_TH: Tensor, probs_TE: Tensor) -> Moved:
        """V→V: return the rows that this rank's experts see, and their weights, as they came."""
        rows = x_TH.index_select(0, self._token_N)
        probs = probs_TE.take(self._place_N).unsqueeze(1)
        if self._row_M is not None:
            rows, probs = (x.index_select(0, self._row_M) for x in (rows, probs))
        return through(self._there, self._back, rows, probs)

    def combine(self, rows_MH: Tensor) -> Tensor:
        """V→V: return for each token of this rank the sum of what its experts made of it."""
        rows_NH = through(self._back, self._there, rows_MH)[0]
        if self._row_M is not None:  # first those of each expert, of which every rank had a part
            rows_NH = summed(rows_NH, self._row_M, len(self._token_N))
        return summed(rows_NH, self._token_N, self._tokens)


def gathered(x_TH: Tensor, probs_TE: Tensor, chosen_TE: Tensor, joint: Axis, copies: int) -> Moved:
    """V→V: return all ranks' rows, and of this rank's experts their weights and who is chosen."""

    def back(x_AH: Tensor, probs_AE: Tensor) -> Moved:
        if x_AH.dtype != probs_AE.dtype:  # a number's bits, cut into two others, don't add up
            return joint.reduce_scatter(x_AH), joint.reduce_scatter(probs_AE)
        return together(joint, joint.reduce_scatter, x_AH, probs_AE)

    said_TE = probs_TE.masked_fill(~chosen_TE, -1.0)
    x_AH, said_AE = through(partial(together, joint, joint.all_gather), back, x_TH, said_TE)
    said_AL = said_AE.chunk(joint.size // copies, 1)[joint.rank // copies]
    return x_AH, said_AL, said_AL >= 0


# ---------------------------------------------------------------------- rows


def together(axis: Axis, collective: Collective, x_NH: Tensor, *probs_NK: Tensor) -> Moved:
    """Send rows with their probabilities behind them, bit by bit, in as many columns as it takes.

    What is sent is contiguous: gloo's all-to-all writes wrong data into a tensor that isn't. Of
    what comes the rows are a view.
    """
    if not probs_NK or axis.size == 1:
        return collective(x_NH), *probs_NK
    (probs,), hidden = probs_NK, x_NH.shape[1]
    columns = probs.shape[1] * probs.itemsize // x_NH.itemsize
    bits = probs.reshape(-1).view(x_NH.dtype).view(-1, columns)
    came = collective(torch.cat([x_NH, bits], 1))
    return came[:, :hidden], came[:, hidden:].contiguous().view(probs.dtype)


def summed(rows_NH: Tensor, token_N: Tensor, tokens: int) -> Tensor:
    """Return the sum of each token's rows, in the order in which they lie."""
    # For a backward of index_add_, autograd would keep the rows.
    place_NH = token_N.unsqueeze(1).expand_as(rows_NH)
    return rows_NH.new_zeros(tokens, rows_NH.shape[1]).scatter_add_(0, place_NH, rows_NH)


def through(forward: Callable[..., Moved], backward: Callable[..., Moved], *x: Tensor) -> Moved:
    """Return forward(*x); `backward` makes x's gradients of those of what was returned."""
    return tuple(apply(_Through, forward, backward, *x))


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, forward: Any, backward: Any, *x: Tensor) -> Any:
        ctx.gradients = backward
        return forward(*x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Rows with gaps between them would be summed one by one.
        return None, None, *(x.contiguous() for x in ctx.gradients(*gradients))
