"""What a run of lab 01 is: the command line, and what must divide what before any rank joins."""

import argparse
import os
import sys
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from resuming import check as check_resuming

from shardlab.gpt.config import GPTConfig
from shardlab.grid.rules import check_divides, check_pipeline, check_tensor

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
            are dealt out over `ep` ranks, which are tensor or data ranks of the other layers.
        fsdp: cut parameters, gradients and moments over the data ranks, instead of a copy on each.
        order: which axis runs fastest, "tp-dp-pp" (Megatron's default) or "tp-pp-dp".
        schedule, microbatches: of the pipeline; micro-batches None for one a stage.
        fused: have the linears overlap what they send with what they compute (matmul.py).
        batch: sequences in a step, over all data ranks and micro-batches.
        link: what carries the axes: "torch" (gloo, or NCCL on GPUs), "fast-gloo" or
            "shared-memory".
        share_gpus: let ranks that have too few GPUs share them, instead of the CPU.
        data: a corpus's prefix (python -m shardlab.data); the grammar unless given.
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
    dtype: str = "float32"
    lr: float = 1e-3
    seed: int = 0
    data: str | None = None
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
    def model(self) -> GPTConfig:
        """The GPT to train."""
        return GPTConfig(
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            vocab=self.vocabulary,
            sequence=self.sequence,
            dtype=DTYPES[self.dtype],
            experts=self._experts(),
        )

    def _experts(self) -> "ExpertConfig | None":
        if not self.experts:
            return None
        from shardlab.experts.config import ExpertConfig

        return ExpertConfig(count=self.experts, ffn=self.hidden, aux_loss=0.01)

    def demand_fit(self, world_size: int) -> None:
        """Refuse a run that cannot be cut as asked, in the order in which one would mend it.

        Raises:
            ValueError: says what does not divide, and what would.
        """
        for name in ("tp", "cp", "pp", "dp", "ep", "batch", "steps", "every", "pieces"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; choose 1 or more")
        if (ranks := self.tp * self.cp * self.pp * self.dp) != world_size:
            cut = f" x --cp {self.cp}" if self.cp > 1 else ""
            raise ValueError(
                f"--tp {self.tp}{cut} x --pp {self.pp} x --dp {self.dp} needs {ranks} ranks, but "
                f"the world has {world_size}: launch with torchrun --nproc-per-node={ranks}, or "
                f"choose sizes whose product is {world_size}"
            )
        check_resuming(self)
        if self.fsdp:
            self._demand_fsdp()
        if self.experts or self.ep > 1:
            self._demand_experts()
        if self.cp > 1 and self.heads % self.tp == 0:  # else that is said below
            from shardlab.context.zigzag import check_heads, check_sequence

            check_sequence(self.sequence, self.cp)
            check_heads(self.cp_kind, self.cp, self.heads // self.tp, "heads")
        sequence = self.sequence // self.cp if self.sequence_parallel else None
        check_tensor(self.tp, hidden=self.hidden, heads=self.heads, sequence=sequence)
        check_pipeline(self.pp, layers=self.layers)
        check_divides("data", self.dp, self.batch, "sequences of a batch")
        share = self.batch // self.dp
        if share % self.pieces:
            raise ValueError(
                f"{self.pieces} micro-batches do not divide the {share} sequences of a data rank "
                f"(batch {self.batch}, data {self.dp}); choose --microbatches or --batch to fit"
            )

    def _demand_experts(self) -> None:
        """Refuse experts that these ranks can't share."""
        if not self.experts or self.fsdp or self.cp > 1:
            raise ValueError(
                f"--experts {self.experts} with --ep {self.ep}: give --experts 2 or more, and "
                "leave --fsdp, which would cut each rank's experts with those of others, and --cp, "
                "since what balances experts counts whole sequences"
            )
        if self.tp > 1 and not self.sequence_parallel:
            raise ValueError(
                f"--experts with --tp {self.tp} goes with --sequence-parallel: without it every "
                "tensor rank routes the same words, and an expert sees them again"
            )
        from shardlab.experts.config import check_experts

        check_experts(self.model.experts, self.ep, 1, self.hidden)
        check_divides("expert", self.ep, self.tp * self.dp, "tensor and data ranks")

    def _demand_fsdp(self) -> None:
        """Refuse what FSDP can't be combined with here."""
        if self.dp * self.cp < 2:
            raise ValueError(
                f"--fsdp cuts the model's state over the data ranks, and --dp is {self.dp}: choose "
                "--dp 2 or more"
            )
        if self.pp > 1:
            raise ValueError(
                f"--fsdp with --pp {self.pp}: each stage would gather its parameters for each "
                "micro-batch anew; choose --pp 1 (it goes with --tp), or leave --fsdp"
            )


HELP = {
    "tp": "ranks on the tensor axis", "pp": "pipeline stages", "dp": "data-parallel replicas",
    "cp": "ranks that share each sequence", "cp_kind": "how attention sees over its cuts",
    "experts": "in place of each feed-forward pair, two for each word; 0 for none",
    "ep": "ranks that the experts are dealt out to, of the tensor and data ranks",
    "fsdp": "cut the model's state over the data ranks (FSDP), instead of a copy on each",
    "order": "which axis runs fastest, and which slowest", "schedule": "of the pipeline",
    "microbatches": "pieces of a data rank's share; one a stage, unless given",
    "sequence_parallel": "cut activations along the sequence between tensor-parallel linears",
    "fused": "overlap the linears' communication with their products",
    "link": "what carries the axes; torch: gloo, or NCCL on GPUs", "cpu": "even where GPUs are",
    "share_gpus": "ranks that have too few GPUs share them (slow), instead of the CPU",
    "check": "compare shapes and dtypes between ranks before each collective",
    "wide_sums": "add bf16 in fp32 and round once, at twice the bytes",
    "steps": "to train now", "batch": "sequences in a step, over all ranks",
    "sequence": "words of a sequence", "layers": "blocks of the model", "hidden": "its width",
    "heads": "of attention", "vocabulary": "words", "dtype": "of weights and activations",
    "lr": "AdamW's learning rate", "seed": "of weights and text",
    "data": "train on the corpus with this prefix, in place of the grammar",
    "every": "steps between lines of progress", "save": "write a checkpoint here at the end",
    "save_every": "and after each so many steps; 0 for never",
    "resume": "go on from the checkpoint in --save, if any; --steps are then the run's in all",
    "load": "go on from the checkpoint here", "losses": "write each step's loss here, in full",
}  # fmt: skip
CHOICES = {
    "cp_kind": ["ring", "all-gather", "ulysses"], "order": [*ORDERS],
    "schedule": ["gpipe", "1f1b", "zb-h1"],
    "link": ["torch", "fast-gloo", "shared-memory"], "dtype": [*DTYPES],
}  # fmt: skip


def parsed(arguments: list[str] | None = None) -> Settings:
    """Read the command line.

    Raises:
        ValueError: an option is unknown, or its value is.
    """
    parser = argparse.ArgumentParser(
        prog="train.py",
        description="Train a small GPT on tensor x pipeline x data ranks, under torchrun.",
        exit_on_error=False,  # every rank would print the usage
    )
    for field in fields(Settings):
        flag, default, text = "--" + field.name.replace("_", "-"), field.default, HELP[field.name]
        if isinstance(default, bool):
            on_off = argparse.BooleanOptionalAction if field.name == "check" else "store_true"
            parser.add_argument(flag, action=on_off, default=default, help=text)
            continue
        kind = int if field.name == "microbatches" else str if default is None else type(default)
        parser.add_argument(
            flag, type=kind, default=default, choices=CHOICES.get(field.name),
            metavar=None if field.name in CHOICES else field.name.upper()[:1],
            help=text if default is None else f"{text} ({default})",
        )  # fmt: skip
    try:
        known, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise ValueError(str(error)) from None
    if unknown:
        raise ValueError(f"unknown: {' '.join(unknown)}; --help lists the options")
    return Settings(**vars(known))


class Refused(Exception):  # noqa: N818  no fault of the program's
    """A run that cannot be as it was asked for, found out on every rank alike; says why."""


def refused(error: Exception) -> int:
    """Let one rank speak and fail for all; torchrun ends the others, which have nothing to add."""
    if int(os.environ.get("RANK", "0")) != 0:
        return 0
    print(f"train.py: error: {error}", file=sys.stderr)
    return 2
