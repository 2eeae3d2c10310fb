"""Checkpoints that another grid can load: tensor, pipeline and data axes of any size, and FSDP.

    checkpoint/
      index.json                       the tensors, and which file has which piece of each
      shards-6b1f…/rank-00000.safetensors …

Every rank writes the slices of which it is the only or the first holder, and lists all tensors of
which it holds a slice. Rank 0 checks that the new index has each element of these tensors once.
Then it replaces the old index by one rename: a job that is killed before the rename leaves the old
checkpoint, and one that is killed after it leaves the new one. A load reads from each file only the
slices that it needs.

A load runs no code of the checkpoint: the index is JSON, the shards are safetensors.

`torch.distributed.checkpoint` was considered. Its reader unpickles `.metadata`
(`FileSystemReader.read_metadata`) and its planner unpickles all that isn't a tensor
(`DefaultLoadPlanner.load_bytes`), so a checkpoint must be trusted. It knows how a tensor is cut
only from DTensors. It writes into the folder of the checkpoint that it replaces, file by file.
`TensorSlice` takes the idea of `ShardedTensor`, with global offsets, from Megatron's
`dist_checkpointing`.
"""

from shardlab.training.checkpoint.index import CheckpointError
from shardlab.training.checkpoint.save_load import load, save

__all__ = ["CheckpointError", "load", "save"]
