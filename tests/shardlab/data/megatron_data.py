"""Megatron-core's own datasets; a test module that imports them is skipped where there are none."""

import pytest

try:
    from costlab.implementations.megatron.datasets import (
        BlendedDataset,
        BlendedMegatronDatasetBuilder,
        DType,
        GPTDataset,
        IndexedDataset,
        IndexedDatasetBuilder,
        Split,
        Tokenizer,
        config,
        gpt_dataset,
        helpers,
        written,
    )
except ModuleNotFoundError as missing:  # the wheel has its C++ for some Pythons only
    if missing.name != "megatron.core.datasets.helpers_cpp":
        raise
    pytest.skip(f"megatron-core's wheel has no {missing.name} here", allow_module_level=True)

__all__ = [
    "BlendedDataset", "BlendedMegatronDatasetBuilder", "DType", "GPTDataset", "IndexedDataset",
    "IndexedDatasetBuilder", "Split", "Tokenizer", "config", "gpt_dataset", "helpers", "written",
]  # fmt: skip
