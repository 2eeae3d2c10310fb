"""Lab 01's command line, and how a run that cannot be ends."""

import argparse
import os
import sys
from dataclasses import fields
from types import NoneType
from typing import get_args

from settings import DTYPES, ORDERS, Settings

HELP = {
    "tp": "ranks on the tensor axis", "pp": "pipeline stages", "dp": "data-parallel replicas",
    "cp": "ranks that share each sequence", "cp_kind": "how attention sees over its cuts",
    "experts": "in place of each feed-forward pair, two for each word; 0 for none",
    "ep": "ranks that the experts are dealt out to, of the tensor, context and data ranks",
    "fsdp": "cut the model's state over the data ranks (FSDP), instead of a copy on each",
    "order": "which axis runs fastest, and which slowest", "schedule": "of the pipeline",
    "microbatches": "pieces of a data rank's share; one a stage, unless given",
    "sequence_parallel": "cut activations along the sequence between tensor-parallel linears",
    "fused": "overlap the linears' communication with their products",
    "recompute": "keep each block's input alone, and run it again in backward",
    "link": "what carries the axes; torch: gloo, or NCCL on GPUs", "cpu": "even where GPUs are",
    "share_gpus": "ranks that have too few GPUs share them (slow), instead of the CPU",
    "check": "compare shapes and dtypes between ranks before each collective",
    "wide_sums": "add bf16 in fp32 and round once, at twice the bytes",
    "steps": "to train now", "batch": "sequences in a step, over all ranks",
    "sequence": "words of a sequence", "layers": "blocks of the model", "hidden": "its width",
    "heads": "of attention", "vocabulary": "words", "dropout": "of activations, in training",
    "dtype": "of the model; with bfloat16 the optimizer keeps its weights in fp32",
    "lr": "AdamW's learning rate", "clip": "the most that the norm of all gradients may be",
    "warmup": "steps in which the rate rises to lr", "decay": "the step at which it is lr / 10",
    "seed": "of weights, masks and text",
    "data": "train on the corpus with this prefix, in place of the grammar",
    "evaluate": "steps between two looks at text that is not trained on",
    "every": "steps between lines of progress", "save": "write a checkpoint here at the end",
    "save_every": "and after each so many steps; 0 for never",
    "resume": "go on from the checkpoint in --save, if any; --steps are then the run's in all",
    "load": "go on from the checkpoint here", "losses": "write each step's loss here, in full",
}  # fmt: skip
CHOICES = {
    "cp_kind": ["ring", "all-gather", "ulysses"], "order": [*ORDERS],
    "schedule": ["gpipe", "1f1b", "interleaved", "zb-h1"],
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
        kind = next(k for k in get_args(field.type) or [field.type] if k is not NoneType)
        parser.add_argument(
            flag, type=kind, default=default, choices=CHOICES.get(field.name),
            metavar=None if field.name in CHOICES else field.name.upper()[:1],
            help=text if default is None else f"{text} ({default})",
        )  # fmt: skip
    try:
        options, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise ValueError(str(error)) from None
    if unknown:
        raise ValueError(f"unknown: {' '.join(unknown)}; --help lists the options")
    return Settings(**vars(options))


def refused(error: Exception) -> int:
    """Let one rank speak and fail for all; torchrun ends the others, which have nothing to add."""
    if int(os.environ.get("RANK", "0")) != 0:
        return 0
    print(f"train.py: error: {error}", file=sys.stderr)
    return 2
