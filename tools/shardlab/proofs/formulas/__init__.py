"""The traffic of each kind of parallelism as pure functions, which tests compare with the ledger.

Every function returns the `Traffic` of one rank: which collectives, of how many bytes, among how
many ranks. Over one rank nothing is sent.
"""

from shardlab.proofs.formulas.context import context_attention, mean_over_all_tokens
from shardlab.proofs.formulas.experts import all_gather_experts, all_to_all_experts
from shardlab.proofs.formulas.fsdp import (
    bucket_sizes,
    data_parallel,
    flat_elements,
    fully_sharded,
    per_parameter_elements,
)
from shardlab.proofs.formulas.gpt import Sizes, micro_batch, pipeline, step
from shardlab.proofs.formulas.tensor_parallel import (
    block,
    column_parallel,
    cross_entropy,
    embedding,
    megatron_cross_entropy,
    partial_gradients,
    row_parallel,
)

__all__ = [
    "Sizes",
    "all_gather_experts",
    "all_to_all_experts",
    "block",
    "bucket_sizes",
    "column_parallel",
    "context_attention",
    "cross_entropy",
    "data_parallel",
    "embedding",
    "flat_elements",
    "fully_sharded",
    "mean_over_all_tokens",
    "megatron_cross_entropy",
    "micro_batch",
    "partial_gradients",
    "per_parameter_elements",
    "pipeline",
    "row_parallel",
    "step",
]
