"""Our GPT and megatron-core's GPTModel trained side by side, on any grid, from the same weights.

Both run their own schedule, their own data parallelism and their own last reductions. The loss is
neither's: a squared distance in fp64, for Megatron's own is in fp32. It is a sum over what each
rank holds, so it needs no collective, and its gradient is right on each.

Dimensions: S sequence, B batch (one micro-batch's), V vocabulary; lower case where sharded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from costlab.implementations import megatron as mcore
from costlab.implementations.megatron import gpt as megatron_gpt
from costlab.implementations.megatron.gpt import OURS_TO_THEIRS, theirs_by_ours
from shardlab.comm import Axis, World
from shardlab.data_parallel.data_parallel import DataParallel
from shardlab.gpt.config import LLAMA
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers import partial_gradients, sharding
from shardlab.pipeline import run, schedule
from tests.shardlab.default_device import default_device
from tests.shardlab.difference import differences, random_like, random_tokens

SEQUENCE, BATCH, VOCAB, HIDDEN, HEADS = 8, 2, 24, 16, 8
STEPS = 4
Errors = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Case:
    """A grid and a model on it.

    Args:
        schedule: ours; Megatron runs 1F1B, whose gradients are the same.
        microbatches: of a step, each of BATCH sequences, for each data-parallel replica.
        steps: of training.
        llama: RMSNorm, rope, SwiGLU, no biases, an untied head (`tied` is then False).
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    tied: bool = True
    groups: int = HEADS
    sequence_parallel: bool = False
    schedule: str = "1f1b"
    microbatches: int = 1
    steps: int = STEPS
    llama: bool = False

    def config(self) -> GPTConfig:
        choices = LLAMA if self.llama else {"tie_embeddings": self.tied}
        return GPTConfig(
            layers=max(2, self.pipeline), hidden=HIDDEN, heads=HEADS, kv_heads=self.groups,
            vocab=VOCAB, sequence=SEQUENCE, dtype=torch.float64, **choices,
        )  # fmt: skip

    def batch(self, step: int, replica: int) -> list[tuple[Tensor, Tensor]]:
        """(tokens [B, S], target [S, B, V]) of each micro-batch of a step."""
        drawn = []
        for index in range(self.microbatches):
            seed = (step * self.data + replica) * self.microbatches + index
            tokens = random_tokens(VOCAB, BATCH, SEQUENCE, seed=seed)
            drawn.append((tokens, random_like(SEQUENCE, BATCH, VOCAB, seed=10_000 + seed)))
        return drawn


def squared(logits_SBv: Tensor, target_SBv: Tensor) -> Tensor:
    return ((logits_SBv - target_SBv) ** 2).sum() / (SEQUENCE * BATCH)


def whole_weights(config: GPTConfig) -> dict[str, Tensor]:
    """Whole random weights by our names; norms around one, biases not zero."""
    alone = GPT(config, tensor=Axis.alone("tensor"))
    return {
        name: random_like(*parameter.shape, seed=seed) * 0.2 + ("norm" in name)
        for seed, (name, parameter) in enumerate(alone.named_parameters())
    }


def steps_for(ranks: int, index: int) -> int:
    """How many steps the variant `index` of a test trains.

    Over gloo, eight ranks on two cores need 20 ms for the smallest all-reduce. So up to four ranks
    train four steps in the first variant; the others, and eight ranks, train two, which is one more
    than a wrong gradient needs to show.
    """
    return STEPS if index == 0 and ranks < 8 else 2


def compared(world: World, cases: list[Case]) -> Errors:
    """Every quantity's difference between ours and Megatron's on this rank; cases of one grid."""
    grid, first = grid_of(world, cases[0]), cases[0]
    with default_device(world):
        weights = [whole_weights(case.config()) for case in cases]
        ours = [
            trained(case, Ours(case, grid, whole), grid)
            for case, whole in zip(cases, weights, strict=True)
        ]
        with mcore.megatron(tensor=first.tensor, pipeline=first.pipeline):
            references = [
                trained(case, MegatronTwin(case, grid, whole), grid)
                for case, whole in zip(cases, weights, strict=True)
            ]
    pairs = zip(cases, ours, references, strict=True)
    return {str(case): differences(actual, reference) for case, actual, reference in pairs}


def grid_of(world: World, case: Case) -> Grid:
    """The case's grid; of eight ranks over shared memory, for which two cores suffice."""
    link = "shared-memory" if world.size == 8 else "torch"
    return Grid(
        world=world, tensor=case.tensor, pipeline=case.pipeline, data=case.data,
        links=dict.fromkeys(("tensor", "pipeline", "data", "embedding"), link),
    )  # fmt: skip


def trained(case: Case, twin: Ours | MegatronTwin, grid: Grid) -> dict[str, Tensor]:
    """What the first forward and backward gave, and the parameters after all steps."""
    seen: dict[str, Tensor] = {}
    optimizer = torch.optim.SGD([p for _, p in twin.named_parameters()], lr=1e-2, momentum=0.9)
    for step in range(case.steps):
        losses = twin.gradients(case.batch(step, grid.data.rank))
        if step == 0:
            seen = {f"loss {index}": loss for index, loss in enumerate(losses)} | {
                f"gradient of {name}": in_our_order(case, twin, name, p.grad).clone()
                for name, p in twin.named_parameters()
                if p.grad is not None
            }
        optimizer.step()
    return seen | {
        name: in_our_order(case, twin, name, p.detach()) for name, p in twin.named_parameters()
    }


def in_our_order(case: Case, twin: Ours | MegatronTwin, name: str, x: Tensor) -> Tensor:
    """A parameter or its gradient; Megatron keeps a rank's gates before what they gate."""
    gated = case.llama and name.endswith("fc1.weight") and isinstance(twin, MegatronTwin)
    return torch.stack(x.chunk(2), 1).flatten(0, 1) if gated else x


class Ours:
    """Our stage of the model."""

    def __init__(self, case: Case, grid: Grid, weights: dict[str, Tensor]) -> None:
        self.model = GPT(
            case.config(), tensor=grid.tensor, sequence_parallel=case.sequence_parallel,
            stage=grid.pipeline.rank, stages=grid.pipeline.size, device=torch.get_default_device(),
        )  # fmt: skip
        sharding.load_whole(self.model, weights)
        self.replicas = DataParallel(
            self.model.named_parameters(), grid.data, backwards=case.microbatches
        )
        self.schedule = schedule.by_name(case.schedule, case.pipeline, case.microbatches)
        self.grid = grid

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return self.model.named_parameters()

    def gradients(self, batch: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Leave the step's gradients in `.grad`; return the losses, on the last stage."""
        self.model.zero_grad()
        tensor = self.grid.tensor
        losses = run.run(
            self.schedule,
            self.model,
            [(tokens, target.chunk(tensor.size, -1)[tensor.rank]) for tokens, target in batch],
            squared,
            axis=self.grid.pipeline,
            shape=self.model.hidden_shape(BATCH, SEQUENCE),
        )
        self.replicas.finish()
        partial_gradients.reduce(self.model, tensor)
        if (tied := self.model.tied_weight) is not None and self.grid.embedding is not None:
            assert tied.grad is not None
            self.grid.embedding.all_reduce(tied.grad, out=tied.grad)
        return losses


class MegatronTwin:
    """Megatron's stage, in its DDP, under its schedule; its parallel state must stand."""

    def __init__(self, case: Case, grid: Grid, weights: dict[str, Tensor]) -> None:
        ours = case.config()
        self.config = mcore.config(
            hidden=HIDDEN, heads=HEADS, depth=ours.layers,
            sequence_parallel=case.sequence_parallel, **megatron_gpt.block_of(ours),
        )  # fmt: skip
        model = megatron_gpt.gpt(
            self.config, vocab=VOCAB, sequence=SEQUENCE, tied=ours.tie_embeddings,
            position_embedding_type=megatron_gpt.POSITIONS[ours.position],
        )  # fmt: skip
        if case.llama:  # its angles are in fp32, which alone would differ by 1e-8
            rates = torch.arange(0, HIDDEN // HEADS, 2, dtype=torch.float64) / (HIDDEN // HEADS)
            model.rotary_pos_emb.inv_freq = ours.rope_base**-rates
        named = {theirs_by_ours(name): whole for name, whole in weights.items()}
        named.setdefault("output_layer.weight", named["embedding.word_embeddings.weight"])
        megatron_gpt.load(model, named)
        self.model = megatron_gpt.data_parallel(model)
        self.grid, self.tied = grid, ours.tie_embeddings

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """By our names."""
        for name, parameter in megatron_gpt.named_parameters(self.model.module):
            if self.tied and name == "output_layer.weight":  # the last stage's copy
                name = "embedding.word_embeddings.weight"  # noqa: PLW2901
            for ours, reference in OURS_TO_THEIRS.items():
                name = name.replace(reference, ours, 1)  # noqa: PLW2901
            yield name, parameter

    def gradients(self, batch: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Leave the step's gradients in `.grad`; return the losses, on the last stage."""
        self.model.zero_grad()
        self.model.zero_grad_buffer()
        tensor = self.grid.tensor

        def forward(batches: Iterator[tuple[Tensor, Tensor]], model: nn.Module) -> Any:
            tokens, target = next(batches)
            positions = torch.arange(SEQUENCE).expand_as(tokens)
            output = model(tokens, positions, megatron_gpt.causal_mask(SEQUENCE))
            share = target.chunk(tensor.size, -1)[tensor.rank]

            def loss(logits_BSv: Tensor) -> tuple[Tensor, Tensor]:
                value = squared(logits_BSv.transpose(0, 1), share)
                return value, value.detach().clone()

            return output, loss

        self.model.config.finalize_model_grads_func = mcore.finalize_model_grads
        losses: list[Tensor] = mcore.schedules.get_forward_backward_func()(
            forward_step_func=forward, data_iterator=iter(batch), model=self.model,
            num_microbatches=len(batch), seq_length=SEQUENCE, micro_batch_size=BATCH,
        )  # fmt: skip
        for _, parameter in self.named_parameters():
            parameter.grad = parameter.main_grad  # type: ignore[attr-defined]
        return losses
