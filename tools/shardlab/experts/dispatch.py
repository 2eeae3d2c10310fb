"""How a token's row gets to its experts, and what they make of it gets home.

    dispatch   V→V   each row to the ranks of its experts, sorted there by expert
    combine    V→V   each expert's rows home again, summed for each token

One is the other's adjoint, so each is the other's backward. Both go over the joint axis of expert
tensor × expert. All-gather sends every row everywhere: n times the rows, and one collective of
equal pieces. All-to-all sends a row to its K experts alone, in uneven pieces, whose sizes must be
exchanged first. A probability travels as a further column of its row, where Megatron's dispatchers
(transformer/moe/token_dispatcher.py) send two collectives, or three.

Dimensions: T tokens of this rank, H hidden, E experts, L = E / ranks of this rank; N rows of tokens
that an expert is to see, one for each (token, expert).
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from shardlab.comm import Axis
from shardlab.comm.pending import Rows
from shardlab.layers.ops import uncompiled

Rowwise = TypeVar("Rowwise", Tensor, "Tensor | None")


class Places:
    """Where each row of one batch goes; made of the routing, used four times (twice in backward).

    `leave` returns what arrives here, rows_NH sorted by expert and their probs_N; `home` the sums
    x_TH of what went out as rows_NH, and probs_TE.

    Args:
        joint: the axis over expert tensor × expert, the former running fastest.
        copies: ranks of it that share an expert.
        chosen_TE: which experts see which token.

    Attributes:
        counts: rows for each of this rank's experts, once `leave` was called.
    """

    def __init__(self, joint: Axis, copies: int, chosen_TE: Tensor) -> None:
        self.joint = joint
        self.copies = copies
        self.local = chosen_TE.shape[1] * copies // joint.size
        self.chosen_ET = chosen_TE.t().contiguous()
        self.counts: list[int] = []
        self._token_N: Tensor  # of each row: whose it is, of this rank's tokens or of all


class AllGather(Places):
    """Every rank sees every row, and picks its experts'."""

    def leave(self, x_TH: Tensor, probs_TE: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Gather all rows, each with its probabilities; −1 says that an expert was not chosen."""
        if probs_TE is None:
            return self.joint.all_gather(x_TH).index_select(0, self._token_N), None
        said_TE = probs_TE.masked_fill(~self.chosen_ET.t(), -1.0)
        gathered = self.joint.all_gather(pack(x_TH, said_TE))
        x_AH, said_AE = unpack(gathered, x_TH.shape[1], probs_TE)
        first = self.joint.rank // self.copies * self.local
        said_LA = said_AE[:, first : first + self.local].t().contiguous()
        self._mine = (slice(first, first + self.local), said_LA >= 0, said_AE.shape)
        self._token_N = self._mine[1].nonzero()[:, 1]
        self.counts = self._mine[1].sum(1).tolist()
        return x_AH.index_select(0, self._token_N), said_LA[self._mine[1]]

    def home(self, rows_NH: Tensor, probs_N: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Put the rows in their places, and sum over the ranks."""
        experts, chosen_LA, shape = self._mine
        x_AH = summed(rows_NH, self._token_N, shape[0])
        if probs_N is None:
            return self.joint.reduce_scatter(x_AH), None
        probs_AE = probs_N.new_zeros(shape)
        mine_LA = probs_N.new_zeros(chosen_LA.shape).masked_scatter_(chosen_LA, probs_N)
        probs_AE[:, experts] = mine_LA.t()
        if x_AH.dtype != probs_AE.dtype:  # a number's bits, cut into two others, don't add up
            return self.joint.reduce_scatter(x_AH), self.joint.reduce_scatter(probs_AE)
        home = self.joint.reduce_scatter(pack(x_AH, probs_AE))
        return unpack(home, x_AH.shape[1], probs_N)


class AllToAll(Places):
    """A row goes to the ranks of its experts alone.

    Args:
        joint, copies, chosen_TE: as above.
        even: every expert has equally many rows of every rank: nobody needs to ask how many.
    """

    def __init__(self, joint: Axis, copies: int, chosen_TE: Tensor, *, even: bool) -> None:
        """Find out how many rows come from each rank for each expert."""
        super().__init__(joint, copies, chosen_TE)
        self._token_N = self.chosen_ET.nonzero()[:, 1]
        mine_E = self.chosen_ET.sum(1)
        sent_nL = mine_E.view(-1, 1, self.local).expand(-1, copies, -1).reshape(joint.size, -1)
        came_nL = mine_E[:1].expand_as(sent_nL) if even else joint.all_to_all(sent_nL)
        self._came = came_nL.tolist()
        self._rows = sent_nL.sum(1).tolist(), [sum(counts) for counts in self._came]
        self.counts = [sum(counts) for counts in zip(*self._came, strict=True)]

    def leave(self, x_TH: Tensor, probs_TE: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Send the rows, each with its probability, and sort what comes by expert."""
        rows_NH = self._copied(x_TH.index_select(0, self._token_N))
        probs_N = None if probs_TE is None else self._copied(probs_TE.t()[self.chosen_ET])
        rows_NH, probs_N = self._exchanged(rows_NH, probs_N, self._rows)
        rows_NH = transposed(rows_NH, self._came).contiguous()  # a product of strided rows may
        return rows_NH, transposed(probs_N, self._came)  # round otherwise

    def home(self, rows_NH: Tensor, probs_N: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Send the rows back where they came from, and sum those of each token."""
        lying = [list(counts) for counts in zip(*self._came, strict=True)]
        rows_NH, probs_N = transposed(rows_NH, lying), transposed(probs_N, lying)
        rows_NH, probs_N = self._exchanged(rows_NH, probs_N, self._rows[::-1])
        x_TH = summed(self._joined(rows_NH), self._token_N, self.chosen_ET.shape[1])
        if probs_N is None:
            return x_TH, None
        probs_ET = probs_N.new_zeros(self.chosen_ET.shape)
        probs_ET[self.chosen_ET] = self._joined(probs_N)
        return x_TH, probs_ET.t()

    def _exchanged(
        self, x_NH: Tensor, probs_N: Tensor | None, rows: Rows
    ) -> tuple[Tensor, Tensor | None]:
        if probs_N is None or self.joint.size == 1:
            return self.joint.all_to_all(x_NH, rows=rows), probs_N
        came = self.joint.all_to_all(pack(x_NH, probs_N.unsqueeze(1)), rows=rows)
        x_NH, probs_N1 = unpack(came, x_NH.shape[1], probs_N)
        return x_NH, probs_N1.squeeze(1)

    def _copied(self, rows: Tensor) -> Tensor:
        """Repeat what goes to an expert for every rank that shares it."""
        if self.copies == 1:
            return rows
        pieces = torch.split(rows, self._rows[0][:: self.copies])
        return torch.cat([piece for piece in pieces for _ in range(self.copies)])

    def _joined(self, rows: Tensor) -> Tensor:
        """Sum what the ranks that share an expert each made of the same rows."""
        if self.copies == 1:
            return rows
        pieces = torch.split(rows, [n * self.copies for n in self._rows[0][:: self.copies]])
        return torch.cat([piece.view(self.copies, -1, *piece.shape[1:]).sum(0) for piece in pieces])


def dispatch(x_TH: Tensor, probs_TE: Tensor, places: AllGather | AllToAll) -> tuple[Tensor, Tensor]:
    """V→V: return the rows that this rank's experts see, sorted by expert, and their weights."""
    rows: tuple[Tensor, Tensor] = _moved(x_TH, probs_TE, places.leave, places.home)
    return rows


def combine(rows_NH: Tensor, places: AllGather | AllToAll) -> Tensor:
    """V→V: return for each token of this rank the sum of what its experts made of it."""
    x_TH: Tensor = _moved(rows_NH, None, places.home, places.leave)[0]
    return x_TH


# ---------------------------------------------------------------------- rows


def pack(x_NH: Tensor, probs_NK: Tensor) -> Tensor:
    """Return rows with their probabilities behind them, bit by bit, in as many columns as it takes.

    Contiguous: gloo's all-to-all writes wrong data into a tensor that isn't.
    """
    columns = probs_NK.shape[1] * probs_NK.itemsize // x_NH.itemsize
    return torch.cat([x_NH, probs_NK.reshape(-1).view(x_NH.dtype).view(-1, columns)], 1)


def unpack(packed: Tensor, hidden: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and probabilities of packed rows, the latter with the dtype of `like`."""
    return packed[:, :hidden], packed[:, hidden:].contiguous().view(like.dtype)


def transposed(rows: Rowwise, counts: list[list[int]]) -> Rowwise:
    """Return pieces that lie as `[i][j]`, with `counts[i][j]` rows each, as `[j][i]`."""
    if rows is None or len(counts) == 1 or len(counts[0]) == 1:
        return rows
    pieces = iter(torch.split(rows, [n for line in counts for n in line]))
    lines = [[next(pieces) for _ in line] for line in counts]
    return torch.cat([piece for column in zip(*lines, strict=True) for piece in column])


def summed(rows_NH: Tensor, token_N: Tensor, tokens: int) -> Tensor:
    """Return the sum of each token's rows, in the order of the experts."""
    return rows_NH.new_zeros(tokens, rows_NH.shape[1]).index_add_(0, token_N, rows_NH)


@uncompiled
def _moved(*args: Any) -> Any:
    return _Moved.apply(*args)  # type: ignore[no-untyped-call]


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, probs: Tensor | None, go: Any, back: Any) -> Any:
        ctx.back = back
        return go(rows, probs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, rows: Tensor, probs: Tensor | None) -> Any:
        return *ctx.back(rows.contiguous(), probs), None, None
