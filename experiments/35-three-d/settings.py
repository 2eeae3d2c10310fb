"""What a run of lab 01 is: its options, how they are read, and which of them are refused."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

import torch

from shardlab.gpt.config import LLAMA, GPTConfig
from shardlab.grid.layout import Layout
from shardlab.grid.rules import check_divides, check_pipeline, check_tensor
from shardlab.pipeline.action import Schedule
from shardlab.pipeline.schedule import by_name

if TYPE_CHECKING:
    from shardlab.experts.expert_config import ExpertConfig

ORDERS = {"tp-dp-pp": "tp-cp-ep-dp-pp", "tp-pp-dp": "tp-cp-ep-pp-dp"}
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
GRAMMAR_WORDS = 64  # words that the text uses where no --data is given


class Refused(Exception):  # noqa: N818  no fault of the program's
    """A run that cannot be as it was asked for, found out on every rank alike; says why."""


def option(default: Any, text: str, choices: Sequence[str] = ()) -> Any:
    """Return a field of `Settings` that is also an option of the command line."""
    return field(default=default, metadata={"help": text, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run. The defaults are the course's grammar tutor, on one rank.

    The number of ranks is tp · cp · pp · dp. Experts are dealt out over `ep` of the ranks that the
    other layers have for tensor, context or data.
    """

    tp: int = option(1, "ranks on the tensor axis")
    cp: int = option(1, "ranks that share each sequence")
    cp_kind: str = option(
        "ring", "how attention sees over its cuts", ["ring", "all-gather", "ulysses"]
    )
    pp: int = option(1, "pipeline stages")
    dp: int = option(1, "data-parallel replicas")
    experts: int = option(0, "in place of each feed-forward pair, two for each word; 0 for none")
    ep: int = option(
        1, "ranks that the experts are dealt out to, of the tensor, context and data ranks"
    )
    fsdp: bool = option(
        False, "cut the model's state over the data ranks (FSDP), instead of a copy on each"
    )
    order: str = option("tp-dp-pp", "which axis runs fastest, and which slowest", [*ORDERS])
    schedule: str = option("1f1b", "of the pipeline", ["gpipe", "1f1b", "interleaved", "zb-h1"])
    microbatches: int | None = option(
        None, "pieces of a data rank's share; one a stage, unless given"
    )
    sequence_parallel: bool = option(
        False, "cut activations along the sequence between tensor-parallel linears"
    )
    fused: bool = option(False, "overlap the linears' communication with their products")
    recompute: bool = option(False, "keep each block's input alone, and run it again in backward")
    link: str = option(
        "torch", "what carries the axes; torch: gloo, or NCCL on GPUs",
        ["torch", "fast-gloo", "shared-memory"],
    )  # fmt: skip
    cpu: bool = option(False, "even where GPUs are")
    share_gpus: bool = option(
        False, "ranks that have too few GPUs share them (slow), instead of the CPU"
    )
    check: bool = option(False, "compare shapes and dtypes between ranks before each collective")
    wide_sums: bool = option(False, "add bf16 in fp32 and round once, at twice the bytes")
    steps: int = option(60, "to train now")
    batch: int = option(4, "sequences in a step, over all ranks")
    sequence: int = option(128, "words of a sequence")
    model: str = option(
        "gpt", "its blocks: GPT-2's, or Llama's (RMS norm, rotary positions, SwiGLU, no biases)",
        ["gpt", "llama"],
    )  # fmt: skip
    layers: int = option(4, "blocks of the model")
    hidden: int = option(128, "its width")
    heads: int = option(4, "of attention")
    kv_heads: int | None = option(None, "groups of heads that share a key and a value; as heads")
    vocabulary: int = option(1024, "words")
    dropout: float = option(0.0, "of activations, in training")
    dtype: str = option(
        "float32", "of the model; with bfloat16 the optimizer keeps its weights in fp32", [*DTYPES]
    )
    lr: float = option(1e-3, "AdamW's learning rate")
    clip: float | None = option(None, "the most that the norm of all gradients may be")
    warmup: int = option(0, "steps in which the rate rises to lr")
    decay: int | None = option(None, "the step at which it is lr / 10")
    seed: int = option(0, "of weights, masks and text")
    data: str | None = option(None, "train on the corpus with this prefix, in place of the grammar")
    evaluate: int | None = option(None, "steps between two looks at text that is not trained on")
    every: int = option(10, "steps between lines of progress")
    save: str | None = option(None, "write a checkpoint here at the end")
    save_every: int = option(0, "and after each so many steps; 0 for never")
    resume: bool = option(
        False, "go on from the checkpoint in --save, if any; --steps are then the run's in all"
    )
    load: str | None = option(None, "go on from the checkpoint here")
    losses: str | None = option(None, "write each step's loss here, in full")

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
        """Whether the optimizer has its own weights, in fp32 (shardlab's training/masters.py)."""
        return self.dtype == "bfloat16"

    @property
    def config(self) -> GPTConfig:
        """The GPT to train; under FSDP its shards are what the optimizer steps on."""
        return GPTConfig(
            **(LLAMA if self.model == "llama" else {}),
            kv_heads=self.kv_heads,
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
        from shardlab.experts.expert_config import ExpertConfig

        return ExpertConfig(count=self.experts, ffn=self.hidden, aux_loss=0.01)


# ---------------------------------------------------------------------- the command line


def parse_arguments(arguments: list[str] | None = None) -> Settings:
    """Read the command line.

    Raises:
        ValueError: an option is unknown, or its value is.
    """
    parser = argparse.ArgumentParser(
        prog="train.py",
        description="Train a small GPT on tensor x pipeline x data ranks, under torchrun.",
        exit_on_error=False,  # every rank would print the usage
    )
    for setting in fields(Settings):
        flag, default = "--" + setting.name.replace("_", "-"), setting.default
        text, choices = setting.metadata["help"], setting.metadata["choices"] or None
        if isinstance(default, bool):
            on_off = argparse.BooleanOptionalAction if setting.name == "check" else "store_true"
            parser.add_argument(flag, action=on_off, default=default, help=text)
            continue
        kind = next(k for k in get_args(setting.type) or [setting.type] if k is not NoneType)
        parser.add_argument(
            flag, type=kind, default=default, choices=choices,
            metavar=None if choices else setting.name.upper()[:1],
            help=text if default is None else f"{text} ({default})",
        )  # fmt: skip
    try:
        options, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise ValueError(str(error)) from None
    if unknown:
        raise ValueError(f"unknown: {' '.join(unknown)}; --help lists the options")
    return Settings(**vars(options))


def print_refusal(error: Exception) -> int:
    """Let one rank speak and fail for all; torchrun ends the others, which have nothing to add."""
    if int(os.environ.get("RANK", "0")) != 0:
        return 0
    print(f"train.py: error: {error}", file=sys.stderr)
    from shardlab.comm.exit_reason import report_reason  # only a refused run needs it

    report_reason(str(error))
    return 2


# ---------------------------------------------------------------------- what is refused


def demand_fit(run: Settings, world_size: int) -> None:
    """Refuse a run that cannot be cut as asked, in the order in which to fix it.

    Raises:
        ValueError: says what does not divide, and what would.
    """
    for name in (
        "tp", "cp", "pp", "dp", "ep", "batch", "steps", "every", "pieces", "evaluate",
        "sequence", "layers", "hidden", "heads", "kv_heads",
    ):  # fmt: skip
        if (number := getattr(run, name)) is not None and number < 1:
            raise ValueError(f"{name} is {number}; choose 1 or more")
    if (ranks := run.tp * run.cp * run.pp * run.dp) != world_size:
        cut = f" x --cp {run.cp}" if run.cp > 1 else ""
        raise ValueError(
            f"--tp {run.tp}{cut} x --pp {run.pp} x --dp {run.dp} needs {ranks} ranks, but "
            f"the world has {world_size}: launch with torchrun --nproc-per-node={ranks}, or "
            f"choose sizes whose product is {world_size}"
        )
    _demand_checkpoints(run)
    if run.fsdp:
        _demand_fsdp(run)
    if run.experts or run.ep > 1:
        _demand_experts(run)
    _demand_a_way_to_train(run)
    groups = run.kv_heads or run.heads
    if run.cp > 1 and run.heads % run.tp == groups % run.tp == 0:  # else that is said below
        from shardlab.context.zigzag import check_heads, check_sequence

        check_sequence(run.sequence, run.cp)
        check_heads(run.cp_kind, run.cp, run.heads // run.tp, "heads")
        check_heads(run.cp_kind, run.cp, groups // run.tp, "key-value groups")
    sequence = run.sequence // run.cp if run.sequence_parallel else None
    check_tensor(
        run.tp, hidden=run.hidden, heads=run.heads, kv_heads=run.kv_heads, sequence=sequence
    )
    check_pipeline(run.pp * run.chunks, layers=run.layers)
    check_divides("data", run.dp, run.batch, "sequences of a batch")
    share = run.batch // run.dp
    if share % run.pieces:
        raise ValueError(
            f"{run.pieces} micro-batches do not divide the {share} sequences of a data rank "
            f"(batch {run.batch}, data {run.dp}); choose --microbatches or --batch to fit"
        )
    assert run.actions  # a schedule refuses stages and micro-batches that it can't order


def _demand_checkpoints(run: Settings) -> None:
    """Refuse checkpoints that lack a folder, or have two to begin with."""
    if run.save_every < 0:
        raise ValueError(f"save_every is {run.save_every}; choose 0 (at the end) or more")
    if (run.resume or run.save_every) and not run.save:
        raise ValueError("--resume and --save-every go with --save: name the checkpoint's folder")
    if run.resume and run.load:
        raise ValueError("--resume goes on from --save, --load from elsewhere: choose one of them")


def _demand_a_way_to_train(run: Settings) -> None:
    """Refuse what no optimizer and no model can do."""
    if run.clip is not None and not run.clip > 0:
        raise ValueError(f"--clip {run.clip}: give the most that the norm may be, or leave it")
    if run.warmup < 0 or (run.decay is not None and run.decay <= run.warmup):
        raise ValueError(
            f"--warmup {run.warmup} --decay {run.decay}: the rate rises for 0 steps or more, and "
            "is down at a later one; choose --decay larger"
        )
    if not run.lr >= 0:
        raise ValueError(f"--lr {run.lr}: choose a rate of 0 or more")
    if run.data is None and run.vocabulary < GRAMMAR_WORDS:
        raise ValueError(
            f"--vocabulary {run.vocabulary}: the grammar uses {GRAMMAR_WORDS} words; choose as many"
        )
    if not 0 <= run.dropout < 1:
        raise ValueError(f"--dropout {run.dropout}: choose 0 or more, and less than 1")
    if run.dropout and run.cp > 1:
        raise ValueError(
            f"--dropout {run.dropout} with --cp {run.cp}: attention in pieces draws no masks; "
            "leave one of the two"
        )


def _demand_experts(run: Settings) -> None:
    """Refuse experts that these ranks can't share."""
    if run.experts < 2 or run.fsdp:
        raise ValueError(
            f"--experts {run.experts} with --ep {run.ep}: give --experts 2 or more, and "
            "leave --fsdp, which would cut each rank's experts with those of others"
        )
    if run.tp > 1 and not run.sequence_parallel:
        raise ValueError(
            f"--experts with --tp {run.tp} goes with --sequence-parallel: without it every "
            "tensor rank routes the same words, and an expert sees them again"
        )
    check_divides("expert", run.ep, run.experts, "experts")
    ranks = run.tp * run.cp * run.dp
    check_divides("expert", run.ep, ranks, "tensor, context and data ranks")
    Layout(run.tp, run.cp, 1, run.dp, run.pp, ORDERS[run.order]).for_experts(run.ep, 1)


def _demand_fsdp(run: Settings) -> None:
    """Refuse what FSDP can't be combined with here."""
    if run.dp * run.cp < 2:
        raise ValueError(
            f"--fsdp cuts the model's state over the data ranks, and --dp is {run.dp}: choose "
            "--dp 2 or more"
        )
    if run.pp > 1:
        raise ValueError(
            f"--fsdp with --pp {run.pp}: each stage would gather its parameters for each "
            "micro-batch anew; choose --pp 1 (it goes with --tp), or leave --fsdp"
        )
    if run.schedule == "zb-h1":
        raise ValueError(
            "--fsdp with --schedule zb-h1: FSDP reduces gradients in backward, and zb-h1 leaves "
            "them for later; choose --schedule 1f1b"
        )
