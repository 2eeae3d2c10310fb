"""The embedding cut along the vocabulary, and the head that shares its shape.

Rank r holds words r·v … (r+1)·v − 1. It looks up its own words and leaves zero rows for the others'
words; the sum over ranks is the embedding. A vocabulary that the axis does not divide is padded:
the padding's rows are zero, no token names them and no target does, and the head gives them the
smallest number there is, so they never win and never take gradient.

`VocabParallelEmbedding` in megatron/core/tensor_parallel/layers.py; Megatron pads in its tokenizer,
to a multiple of 128 for each rank, and leaves the padding's logits in the softmax.

Dimensions: S sequence, B batch, H hidden, V vocabulary; lower case: this rank's share.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding

from shardlab.comm import Axis
from shardlab.grid.rules import padded_vocabulary
from shardlab.layers.copying import CopyableModule
from shardlab.layers.engine import apply
from shardlab.layers.init import DEFAULT, Init
from shardlab.layers.matmul import column_parallel, product_dtype


class VocabParallelEmbedding(CopyableModule):
    """A word's vector, with the table cut along the vocabulary.

    Args:
        vocab: V, any number of words.
        hidden: H.
        axis: the tensor axis.
        sequence_parallel: return this rank's rows of the sequence, by a reduce-scatter instead of
            an all-reduce. (Megatron does so only without learned positions; with them it sums the
            whole and slices.)
        name: of the layer in the whole model.
        init: how parameters start.

    Shapes: tokens [S, B] integers -> [S, B, H], or [s, B, H]; weight [v, H] with v = ⌈V / ranks⌉.
    A token outside 0 … V − 1 gives a zero vector, since nobody holds it; one rank alone refuses it.

    """

    def __init__(
        self, vocab: int, hidden: int, *, axis: Axis, sequence_parallel: bool = False,
        name: str = "word_embedding", init: Init = DEFAULT,
    ) -> None:  # fmt: skip
        """Draw the table."""
        super().__init__()
        self.axis = axis
        self.sequence_parallel = sequence_parallel
        self.weight = vocabulary_weight(vocab, hidden, axis=axis, name=name, init=init)

    def forward(self, tokens_SB: Tensor) -> Tensor:
        """Return the tokens' vectors."""
        if self.axis.size == 1:
            return embedding(tokens_SB, self.weight)
        return apply(_Lookup, self.weight, tokens_SB, self.axis, self.sequence_parallel)


class VocabParallelHead(CopyableModule):
    """Logits for this rank's words: a column-parallel linear without bias over the vocabulary.

    Args:
        vocab: V.
        hidden: H.
        axis: the tensor axis.
        weight: the embedding's parameter, to tie the two; None to have one of its own.
        sequence_parallel: x arrives cut along S.
        gradient_accumulation: as in ColumnParallelLinear.
        name: of the layer in the whole model.
        init: how parameters start.

    Shapes: x [S, B, H] or [s, B, H] -> logits [S, B, v]; weight [v, H].

    """

    def __init__(
        self, vocab: int, hidden: int, *, axis: Axis, weight: nn.Parameter | None = None,
        sequence_parallel: bool = False, gradient_accumulation: bool = False, name: str = "head",
        init: Init = DEFAULT,
    ) -> None:  # fmt: skip
        """Draw the weight, or take the embedding's."""
        super().__init__()
        self.axis = axis
        self.sequence_parallel = sequence_parallel
        self.gradient_accumulation = gradient_accumulation
        if weight is None:
            weight = vocabulary_weight(vocab, hidden, axis=axis, name=name, init=init)
        self.weight = weight
        length = weight.shape[0]
        self.words = min(max(vocab - axis.rank * length, 0), length)  # on this rank; then padding

    def forward(self, x_SBH: Tensor) -> Tensor:
        """Return logits_SBv."""
        return column_parallel(
            x_SBH,
            self.weight,
            self._padding(),
            axis=self.axis,
            sequence_parallel=self.sequence_parallel,
            gradient_accumulation=self.gradient_accumulation,
        )

    def _padding(self) -> Tensor | None:
        """Return what to add to the logits: 0 for a word, the smallest finite number for padding.

        Finite, so that a rank that holds nothing but padding still has a softmax. As the linear's
        bias it costs nothing. None where this rank holds no padding.
        """
        length = self.weight.shape[0]
        if self.words == length:
            return None
        dtype = product_dtype(self.weight)
        padding_v = torch.zeros(length, dtype=dtype, device=self.weight.device)
        padding_v[self.words :] = torch.finfo(padding_v.dtype).min
        return padding_v


def vocabulary_weight(
    vocab: int, hidden: int, *, axis: Axis, name: str, init: Init
) -> nn.Parameter:
    """Return this rank's rows [v, H] of a table of `vocab` words, padded with zero rows."""
    padded = padded_vocabulary(vocab, axis.size)
    return init.sharded(f"{name}.weight", (vocab, hidden), axis=axis, dim=0, padded=padded)


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight_vH: Tensor, tokens_SB: Tensor, axis: Axis, sequence_parallel: bool
    ) -> Tensor:
        length = weight_vH.shape[0]
        local_SB = tokens_SB - axis.rank * length
        elsewhere_SB1 = ((local_SB < 0) | (local_SB >= length)).unsqueeze(-1)
        local_SB.masked_fill_(elsewhere_SB1.squeeze(-1), 0)
        ctx.axis, ctx.sequence_parallel, ctx.length = axis, sequence_parallel, length
        ctx.save_for_backward(local_SB, elsewhere_SB1)
        x_SBH = embedding(local_SB, weight_vH).masked_fill_(elsewhere_SB1, 0)
        if sequence_parallel:
            return axis.reduce_scatter(x_SBH)
        return axis.all_reduce(x_SBH, out=x_SBH)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        local_SB, elsewhere_SB1 = ctx.saved_tensors
        grad_SBH = ctx.axis.all_gather(grad) if ctx.sequence_parallel else grad
        grad_SBH = grad_SBH.masked_fill(elsewhere_SB1, 0)
        grad_vH = torch.ops.aten.embedding_dense_backward(grad_SBH, local_SB, ctx.length, -1, False)
        return grad_vH, None, None, None
