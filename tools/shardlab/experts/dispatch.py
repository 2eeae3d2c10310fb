"""Sends tokens' rows to their experts' ranks, and the experts' outputs back.

    all_gather_rows   V→V   every rank's rows, from which a rank selects those of its experts
    dispatch          V→V   each row to the ranks of its experts
    combine           V→V   the experts' outputs back, summed for each token

The last two are adjoint to each other, so each is the other's backward. Both use the joint axis of
expert tensor × expert. An all-to-all sends a row only to its K experts, in uneven pieces, whose
sizes must be exchanged first. An all-gather sends every row to all n ranks, in one collective of
equal pieces; dispatch and combine are then local, and a reduce-scatter sums the outputs. A
probability is sent as a further column of its row. Megatron's dispatchers
(transformer/moe/token_dispatcher.py) use two or three collectives instead.

Received rows stay in their order, by rank and then by expert; each expert concatenates its rows.
Megatron sorts them in between, which costs one more copy each way.

Dimensions: T tokens of this rank, A of all ranks, H hidden, E experts, n ranks, L = E / n; N rows
for experts, one for each (token, expert); M the same, with one more for each further rank that
shares the expert.
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
RowsAndProbs = tuple[Tensor, ...]  # rows, then their probabilities if these are sent too


class DispatchPlan:
    """The destination of each row of one batch; used four times, twice of them in backward.

    Args:
        joint: the axis over expert tensor × expert; expert tensor varies fastest.
        copies: ranks of the joint axis that share an expert.
        chosen_TE: which experts see which token.
        even: every expert has equally many rows of every rank, so no counts are exchanged.

    Attributes:
        counts: the numbers of received rows, by source rank and then by expert of this rank.
    """

    def __init__(self, joint: Axis, copies: int, chosen_TE: Tensor, *, even: bool = False) -> None:
        """Exchange how many rows each rank sends to each expert."""
        sent_E = chosen_TE.sum(0)
        sent_nL = sent_E.view(joint.size // copies, 1, -1).expand(-1, copies, -1).flatten(0, 1)
        # Sent while the rows are selected.
        pending = None if even else joint.start("all_to_all", sent_nL)
        expert_N, self._token_N = chosen_TE.t().contiguous().nonzero().unbind(1)
        self._place_N = self._token_N * chosen_TE.shape[1] + expert_N
        received_nL = pending.wait() if pending else sent_E[:1].expand_as(sent_nL)
        sent, received = torch.stack([sent_nL, received_nL]).tolist()  # one wait for the device
        self.counts: list[int] = [rows for rank_counts in received for rows in rank_counts]
        rows = [*map(sum, sent)], [*map(sum, received)]
        self._send = partial(send_packed, joint, partial(joint.all_to_all, rows=rows))
        self._return = partial(send_packed, joint, partial(joint.all_to_all, rows=rows[::-1]))
        self._tokens, self._row_M = len(chosen_TE), None
        if copies > 1:  # a row goes to every rank that shares its expert
            row_N = torch.arange(len(expert_N), device=expert_N.device)
            pieces = torch.split(row_N, rows[0][::copies])
            self._row_M = torch.cat([piece for piece in pieces for _ in range(copies)])

    def dispatch(self, x_TH: Tensor, probs_TE: Tensor) -> RowsAndProbs:
        """V→V: return the rows for this rank's experts and their weights, in the order received."""
        rows = x_TH.index_select(0, self._token_N)
        probs = probs_TE.take(self._place_N).unsqueeze(1)
        if self._row_M is not None:
            rows, probs = (x.index_select(0, self._row_M) for x in (rows, probs))
        return apply_pair(self._send, self._return, rows, probs)

    def combine(self, rows_MH: Tensor) -> Tensor:
        """V→V: return for each token of this rank the sum of its experts' outputs."""
        rows_NH = apply_pair(self._return, self._send, rows_MH)[0]
        if self._row_M is not None:  # first sum the parts of the ranks that share an expert
            rows_NH = sum_rows(rows_NH, self._row_M, len(self._token_N))
        return sum_rows(rows_NH, self._token_N, self._tokens)


def all_gather_rows(
    x_TH: Tensor, probs_TE: Tensor, chosen_TE: Tensor, joint: Axis, copies: int
) -> RowsAndProbs:
    """V→V: return all ranks' rows, and the weights and the choice for this rank's experts."""

    def reduce_gradients(x_AH: Tensor, probs_AE: Tensor) -> RowsAndProbs:
        if x_AH.dtype != probs_AE.dtype:  # packed bits of another dtype can't be summed
            return joint.reduce_scatter(x_AH), joint.reduce_scatter(probs_AE)
        return send_packed(joint, joint.reduce_scatter, x_AH, probs_AE)

    signalled_TE = probs_TE.masked_fill(~chosen_TE, -1.0)
    x_AH, signalled_AE = apply_pair(
        partial(send_packed, joint, joint.all_gather), reduce_gradients, x_TH, signalled_TE
    )
    signalled_AL = signalled_AE.chunk(joint.size // copies, 1)[joint.rank // copies]
    return x_AH, signalled_AL, signalled_AL >= 0


# ---------------------------------------------------------------------- rows


def send_packed(
    axis: Axis, collective: Collective, x_NH: Tensor, *probs_NK: Tensor
) -> RowsAndProbs:
    """Send rows with their probabilities, whose bits are packed into further columns of the rows.

    The packed tensor is contiguous: gloo's all-to-all writes wrong data into a tensor that isn't.
    The returned rows are a view of the received tensor.
    """
    if not probs_NK or axis.size == 1:
        return collective(x_NH), *probs_NK
    (probs,), hidden = probs_NK, x_NH.shape[1]
    columns = probs.shape[1] * probs.itemsize // x_NH.itemsize
    packed = probs.reshape(-1).view(x_NH.dtype).view(-1, columns)
    received = collective(torch.cat([x_NH, packed], 1))
    return received[:, :hidden], received[:, hidden:].contiguous().view(probs.dtype)


def sum_rows(rows_NH: Tensor, token_N: Tensor, tokens: int) -> Tensor:
    """Return the sum of each token's rows, added in their order."""
    # index_add_ isn't used, since autograd would save the rows for its backward.
    place_NH = token_N.unsqueeze(1).expand_as(rows_NH)
    return rows_NH.new_zeros(tokens, rows_NH.shape[1]).scatter_add_(0, place_NH, rows_NH)


def apply_pair(
    forward: Callable[..., RowsAndProbs], backward: Callable[..., RowsAndProbs], *x: Tensor
) -> RowsAndProbs:
    """Return forward(*x); `backward` maps the results' gradients to the gradients of x."""
    return tuple(apply(_Pair, forward, backward, *x))


class _Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, forward: Any, backward: Any, *x: Tensor) -> Any:
        ctx.gradients = backward
        return forward(*x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Autograd sums non-contiguous gradients row by row, which is slow.
        return None, None, *(x.contiguous() for x in ctx.gradients(*gradients))
