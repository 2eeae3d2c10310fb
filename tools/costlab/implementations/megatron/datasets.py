"""Megatron-core's own datasets, made as its training script makes them.

Importing this raises ModuleNotFoundError where the wheel has no C++ of theirs: it has it for some
Pythons only.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from costlab.implementations import megatron  # noqa: F401  (loads Megatron without inductor)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that apex and Transformer Engine are not installed
    from megatron.core.datasets import gpt_dataset, helpers
    from megatron.core.datasets.blended_dataset import BlendedDataset
    from megatron.core.datasets.blended_megatron_dataset_builder import (
        BlendedMegatronDatasetBuilder,
    )
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import DType, IndexedDataset, IndexedDatasetBuilder
    from megatron.core.datasets.utils import Split

__all__ = [
    "BlendedDataset", "BlendedMegatronDatasetBuilder", "DType", "GPTDataset", "IndexedDataset",
    "IndexedDatasetBuilder", "Split", "Tokenizer", "config", "gpt_dataset", "helpers", "written",
]  # fmt: skip


class Tokenizer:
    """What a config reads of a tokenizer."""

    vocab_size = 1000
    eod = 999
    unique_identifiers = "none"


def config(sequence: int, **settings: Any) -> GPTDatasetConfig:
    """Return the settings of a dataset of samples of `sequence` tokens."""
    plain = {
        "random_seed": 1234, "sequence_length": sequence, "tokenizer": Tokenizer(),
        "reset_position_ids": False, "reset_attention_mask": False, "eod_mask_loss": False,
        "create_attention_mask": False,
    }  # fmt: skip
    return GPTDatasetConfig(**plain | settings)


def written(prefix: Path, lengths: list[int], dtype: Any = np.int32, seed: int = 0) -> Path:
    """Write a corpus of random tokens, a document a sequence; return its prefix."""
    draw = np.random.default_rng(seed)
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    for length in lengths:
        builder.add_document(draw.integers(0, 100, length), [length])
    builder.finalize(f"{prefix}.idx")
    return prefix
