"""A GPT over the tensor axis, whole or one stage of a pipeline.

Dimensions: S sequence, B batch, H hidden, V vocabulary; lower case: this rank's share (s under
sequence parallelism only).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.gpt.block import Block
from shardlab.gpt.config import GPTConfig
from shardlab.grid.rules import check_divides, check_pipeline, check_tensor
from shardlab.layers import partial_gradients
from shardlab.layers.cross_entropy import IGNORED, cross_entropy
from shardlab.layers.dropout import Dropout, dropouts_of
from shardlab.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from shardlab.layers.init import Init
from shardlab.layers.norm import NORMS
from shardlab.layers.sharding import CopyableModule

if TYPE_CHECKING:
    from shardlab.context.parallel import ContextParallel
    from shardlab.experts.layer import ExpertAxes
    from shardlab.experts.router import Router

__all__ = ["GPT", "GPTConfig"]


class GPT(CopyableModule):
    """Stage `stage` of `stages` of a GPT; by default all of it.

    The first stage holds the embeddings, the last the final norm and the head, each an equal share
    of the blocks. Parameters have the same names on any grid: `word_embedding.weight`, the learned
    `position_embedding`, `layers.3.mlp.fc1.weight` with the layer's number in the whole model,
    `final_norm.weight`, and untied `head.weight`. A tied weight stands on the first and on the last
    stage under the same name and starts alike; whoever trains sums its gradients over
    `grid.embedding`. `sharding.load_whole` and `whole_parameters` load and gather a model;
    `partial_gradients.reduce` finishes its gradients under sequence parallelism.

    Args:
        config: the model.
        tensor: the tensor axis.
        sequence_parallel: between the linears keep activations cut along S; no effect on an axis of
            one rank.
        seed: of the initial weights.
        dropout_seed: of dropout masks, one for each data rank; None for `seed` and the data rank,
            which StepGradients and FSDP know (without them the ranks drop the same elements).
        stage: 0 … stages − 1.
        stages: of the pipeline; divides `config.layers`, unless `blocks` says which are here.
        device: of parameters.
        experts: `ExpertAxes.of(grid)`, where the config has experts; None for one rank.
        blocks: the numbers of this stage's blocks in the whole model; None for an equal share.
        context: how sequences are cut over the context axis: this rank is then given its own tokens
            and targets (`context.shard`), and S below is their number.

    Raises:
        ValueError: something does not divide; the message says what would.

    """

    def __init__(
        self, config: GPTConfig, *, tensor: Axis, sequence_parallel: bool = False,
        seed: int = 0, dropout_seed: int | None = None,
        stage: int = 0, stages: int = 1, device: torch.device | str = "cpu",
        experts: ExpertAxes | None = None, context: ContextParallel | None = None,
        blocks: range | None = None,
    ) -> None:  # fmt: skip
        """Make this stage's part."""
        super().__init__()
        check_tensor(
            tensor.size, hidden=config.heads * config.head, heads=config.heads,
            kv_heads=config.groups, ffn=config.ffn_width,
        )  # fmt: skip
        if blocks is None:
            check_pipeline(stages, layers=config.layers)
            share = config.layers // stages
            blocks = range(stage * share, (stage + 1) * share)
        if not 0 <= stage < stages:
            raise ValueError(f"stage {stage} of {stages}: expected 0 <= stage < {stages}")
        self.config = config
        self.tensor = tensor
        self.context = context = context if context and context.axis.size > 1 else None
        self.sequence_parallel = sequence_parallel and tensor.size > 1
        if context and config.dropout:
            raise ValueError(
                f"dropout {config.dropout} beside a context axis of size {context.axis.size}: "
                "attention in pieces draws no masks; choose context = 1, or leave it"
            )
        self.first, self.last = stage == 0, stage == stages - 1
        self._init = Init(seed, config.init_std, config.dtype, device)
        own_seed, dropout_seed = dropout_seed, seed if dropout_seed is None else dropout_seed
        if self.first or (self.last and config.tie_embeddings):
            self.word_embedding = VocabParallelEmbedding(
                config.vocab, config.hidden, axis=tensor, init=self._init,
                sequence_parallel=self.sequence_parallel,
            )  # fmt: skip
        if self.first:
            self._make_positions(dropout_seed)
        self.layers = nn.ModuleDict(
            {
                str(index): Block(
                    config, f"layers.{index}", axis=tensor, init=self._init,
                    sequence_parallel=self.sequence_parallel,
                    dropout_seed=dropout_seed, experts=experts, context=context,
                )
                for index in blocks
            }
        )  # fmt: skip
        if self.last:
            self._make_head()
        if own_seed is None:
            for dropout in dropouts_of(self):
                dropout.replica = 0

    @property
    def tied_weight(self) -> nn.Parameter | None:
        """The tied weight, where another stage holds a copy of it; None elsewhere.

        Its gradient is summed over `grid.embedding` after backward, as Megatron does in
        `_allreduce_word_embedding_grads` (megatron/core/distributed/finalize_model_grads.py).
        """
        tied = self.config.tie_embeddings and self.first != self.last
        return self.word_embedding.weight if tied else None

    @property
    def routers(self) -> list[Router]:
        """Those of this stage, where the model has experts."""
        blocks: list[Any] = list(self.layers.values())
        return [block.mlp.router for block in blocks] if self.config.experts else []

    def forward(
        self, x: Tensor, documents_BS: Tensor | None = None, padding_BS: Tensor | None = None
    ) -> Tensor:
        """Run this stage.

        Args:
            x: tokens [B, S] on the first stage, hidden states [s, B, H] on the others.
            documents_BS: of packed sequences, which document each token belongs to, of *whole*
                sequences also under a context axis; a token sees its own document alone.
            padding_BS: true where this rank's tokens are padding, on every stage; no router counts
                them or sends them to an expert. Their targets should be −100.

        Returns:
            logits [S, B, v] on the last stage (this rank's words), hidden states elsewhere.

        """
        x_sBH = self.embed(x) if self.first else x
        masks: tuple[Tensor | None, ...] = () if documents_BS is None else (documents_BS,)
        if padding_BS is not None:
            begin = self.tensor.rank * len(x_sBH) if self.sequence_parallel else 0
            masks = documents_BS, padding_BS.t().narrow(0, begin, len(x_sBH))
        for block in self.layers.values():
            x_sBH = block(x_sBH, *masks)
        if not self.last:
            return x_sBH
        logits_SBv: Tensor = self.head(self.final_norm(x_sBH))
        return logits_SBv

    def embed(self, tokens_BS: Tensor) -> Tensor:
        """Return the hidden states [s, B, H] that enter the first block.

        Raises:
            ValueError: more tokens than positions, or under sequence parallelism tokens that the
                axis does not divide; or tokens that aren't a context rank's share.

        """
        tokens = tokens_BS.shape[1]
        self._check_sequence(tokens)
        x_sBH: Tensor = self.word_embedding(tokens_BS.t())
        if self.config.position == "learned":
            length = x_sBH.shape[0]
            begin = self.tensor.rank * length if self.sequence_parallel else 0
            position_SH: Tensor = self.position_embedding
            if self.context:
                position_SH = position_SH[self.context.positions(tokens)]
            x_sBH = x_sBH + position_SH.narrow(0, begin, length).unsqueeze(1)
        embedded_sBH: Tensor = self.embedding_dropout(x_sBH)
        return embedded_sBH

    def loss(self, logits_SBv: Tensor, targets_BS: Tensor) -> Tensor:
        """Return the mean cross-entropy, the same on every rank of the tensor axis.

        Under a context axis it is this rank's part of the mean over all ranks' tokens, times their
        number: the mean of what the ranks return is that mean, wherever the counted targets lie.

        Targets of −100 are not counted, as in torch; the mean over none is NaN. Where shares of a
        batch count differently many, weigh them: `reduction="tokens"` of DataParallel.
        """
        loss = cross_entropy(logits_SBv, targets_BS.t(), axis=self.tensor).sum()
        counted = (targets_BS != IGNORED).sum()
        if self.context:
            counted, loss = self.context.axis.all_reduce(counted), loss * self.context.axis.size
        return loss / counted

    def hidden_shape(self, batch: int, sequence: int) -> tuple[int, int, int]:
        """Return (s, B, H): what one stage hands to the next for `batch` whole sequences."""
        if self.context:
            sequence //= self.context.axis.size
        rows = sequence // self.tensor.size if self.sequence_parallel else sequence
        return rows, batch, self.config.hidden

    def _check_sequence(self, tokens: int) -> None:
        ranks = self.context.axis.size if self.context else 1
        if tokens * ranks > self.config.sequence:
            shares = (
                f", {ranks} shares of {tokens} (`context.shard` cuts them)" if ranks > 1 else ""
            )
            raise ValueError(
                f"a sequence of {tokens * ranks} tokens{shares}, but the model has "
                f"{self.config.sequence} positions; cut the sequence, or make "
                "GPTConfig(sequence=…) as long"
            )
        if self.sequence_parallel:
            what = "tokens of a sequence (sequence parallelism)"
            check_divides(self.tensor.name, self.tensor.size, tokens, what)

    def _make_positions(self, dropout_seed: int) -> None:
        if self.config.position == "learned":
            self.position_embedding = self._init.replicated(
                "position_embedding", (self.config.sequence, self.config.hidden)
            )
            if self.sequence_parallel:  # each rank meets the rows of its own positions
                partial_gradients.mark(self.position_embedding)
        self.embedding_dropout = Dropout(
            self.config.dropout, axis=self.tensor, sharded=self.sequence_parallel,
            name="embedding_dropout", seed=dropout_seed,
        )  # fmt: skip

    def _make_head(self) -> None:
        config = self.config
        self.final_norm = NORMS[config.norm](
            config.hidden, sequence_parallel=self.sequence_parallel, eps=config.norm_eps,
            init=self._init,
        )  # fmt: skip
        self.head = VocabParallelHead(
            config.vocab, config.hidden, axis=self.tensor,
            weight=self.word_embedding.weight if config.tie_embeddings else None,
            sequence_parallel=self.sequence_parallel,
            init=self._init,
        )  # fmt: skip
