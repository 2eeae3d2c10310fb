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

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from shardlab.comm import Axis
from shardlab.grid.rules import padded_vocabulary
from shardlab.layers import ops
from shardlab.layers.init import DEFAULT, Init
from shardlab.layers.linear import Fused, Linear, product_dtype
from shardlab.layers.sharding import CopyableModule


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
        length = self.weight.shape[0]
        local_SB = tokens_SB - self.axis.rank * length
        elsewhere_SB = (local_SB < 0) | (local_SB >= length)
        x_SBH = embedding(local_SB.masked_fill(elsewhere_SB, 0), self.weight)
        x_SBH = x_SBH.masked_fill_(elsewhere_SB.unsqueeze(-1), 0)
        cross = ops.reduce_scatter if self.sequence_parallel else ops.reduce_from
        return cross(x_SBH, self.axis)


class VocabParallelHead(CopyableModule):
    """Logits for this rank's words: a column-parallel linear without bias over the vocabulary.

    Args:
        vocab: V.
        hidden: H.
        axis: the tensor axis.
        weight: the embedding's parameter, to tie the two; None to have one of its own.
        sequence_parallel: x arrives cut along S.
        name: of the layer in the whole model.
        init: how parameters start.

    Shapes: x [S, B, H] or [s, B, H] -> logits [S, B, v]; weight [v, H].

    """

    def __init__(
        self, vocab: int, hidden: int, *, axis: Axis, weight: nn.Parameter | None = None,
        sequence_parallel: bool = False, name: str = "head", init: Init = DEFAULT,
    ) -> None:  # fmt: skip
        """Draw the weight, or take the embedding's."""
        super().__init__()
        self.axis = axis
        self.sequence_parallel = sequence_parallel
        self.linear: Linear = linear
        self.fused: Fused | None = None
        if weight is None:
            weight = vocabulary_weight(vocab, hidden, axis=axis, name=name, init=init)
        self.weight = weight
        length = weight.shape[0]
        self.words = min(max(vocab - axis.rank * length, 0), length)  # on this rank; then padding

    def forward(self, x_SBH: Tensor) -> Tensor:
        """Return logits_SBv."""
        padding_v = self._padding()
        if self.fused:
            return self.fused(x_SBH, self.weight, padding_v, self.axis, self.sequence_parallel)
        cross = ops.all_gather if self.sequence_parallel else ops.copy_to
        return self.linear(cross(x_SBH, self.axis), self.weight, padding_v)

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
