"""What a run of lab 01 is: one dataclass, and the model that it describes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from shardlab.gpt.config import GPTConfig
from shardlab.pipeline.action import Schedule
from shardlab.pipeline.schedule import by_name

if TYPE_CHECKING:
    from shardlab.experts.config import ExpertConfig

ORDERS = {"tp-dp-pp": "tp-cp-ep-dp-pp", "tp-pp-dp": "tp-cp-ep-pp-dp"}
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run. The defaults are the course's grammar tutor, on one rank.

    Attributes:
        tp, cp, pp, dp: ranks along the tensor, context, pipeline and data axes; the world is their
            product.
        cp_kind: how attention sees over the cuts of a sequence: "ring", "all-gather", "ulysses".
        experts, ep: in place of each feed-forward pair, two of them for each word; 0 for none. They
            are dealt out over `ep` ranks, which the other layers have for tensor, context or data.
        fsdp: cut parameters, gradients and moments over the data ranks, instead of a copy on each.
        order: which axis runs fastest, "tp-dp-pp" (Megatron's default) or "tp-pp-dp".
        schedule, microbatches: of the pipeline; micro-batches None for one a stage. "interleaved"
            gives each stage two pieces of the model.
        fused: have the linears overlap what they send with what they compute (matmul.py).
        recompute: keep each block's input alone, and run it again in backward.
        batch: sequences in a step, over all data ranks and micro-batches.
        link: what carries the axes: "torch" (gloo, or NCCL on GPUs), "fast-gloo" or
            "shared-memory".
        share_gpus: let ranks that have too few GPUs share them, instead of the CPU.
        dtype: of the model; under "bfloat16" the optimizer has its weights in fp32 (masters.py).
        clip: the most that the norm of all gradients may be; None for no limit.
        warmup, decay: steps in which the rate rises, and the step at which it is a tenth of `lr`;
            None for a rate that stays.
        data: a corpus's prefix (python -m shardlab.data); the grammar unless given.
        evaluate: steps between two looks at text that is not trained on; None for none.
        every: steps between two lines of progress.
        save, save_every: a checkpoint's folder, and steps between two; 0 for one at the end.
        resume: go on from what lies in `save`, if anything does; `steps` are then the run's in all.
        losses: a file for each step's loss, in full.
    """

    tp: int = 1
    cp: int = 1
    cp_kind: str = "ring"
    pp: int = 1
    dp: int = 1
    experts: int = 0
    ep: int = 1
    fsdp: bool = False
    order: str = "tp-dp-pp"
    schedule: str = "1f1b"
    microbatches: int | None = None
    sequence_parallel: bool = False
    fused: bool = False
    recompute: bool = False
    link: str = "torch"
    cpu: bool = False
    share_gpus: bool = False
    check: bool = False
    wide_sums: bool = False
    steps: int = 60
    batch: int = 4
    sequence: int = 128
    layers: int = 4
    hidden: int = 128
    heads: int = 4
    vocabulary: int = 1024
    dropout: float = 0.0
    dtype: str = "float32"
    lr: float = 1e-3
    clip: float | None = None
    warmup: int = 0
    decay: int | None = None
    seed: int = 0
    data: str | None = None
    evaluate: int | None = None
    every: int = 10
    save: str | None = None
    save_every: int = 0
    resume: bool = False
    load: str | None = None
    losses: str | None = None

    @property
    def pieces(self) -> int:
        """Micro-batches that a rank runs in a step."""
        return self.pp if self.microbatches is None else self.microbatches

    @property
    def chunks(self) -> int:
        """Pieces of the model that a stage holds."""
        return 2 if self.schedule == "interleaved" else 1

    @property
    def actions(self) -> Schedule:
        """What each stage does in a step.

        Raises:
            ScheduleError: the schedule can't have so many stages and micro-batches.
        """
        return by_name(self.schedule, self.pp, self.pieces, self.chunks)

    @property
    def masters(self) -> bool:
        """Whether the optimizer has its own weights, in fp32."""
        return self.dtype == "bfloat16"

    @property
    def model(self) -> GPTConfig:
        """The GPT to train; under FSDP its shards are what the optimizer steps on."""
        return GPTConfig(
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            vocab=self.vocabulary,
            sequence=self.sequence,
            dropout=self.dropout,
            dtype=torch.float32 if self.fsdp and self.masters else DTYPES[self.dtype],
            experts=self._experts(),
        )

    def _experts(self) -> "ExpertConfig | None":
        if not self.experts:
            return None
        from shardlab.experts.config import ExpertConfig

        return ExpertConfig(count=self.experts, ffn=self.hidden, aux_loss=0.01)
