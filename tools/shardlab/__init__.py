"""shardlab: sharded training in small files, equal to Megatron-core and PyTorch.

Start with `grid` (who is who), `comm` (who sends what to whom) and `layers/ops` (how gradients
cross).
"""
