"""Who is measured: one training step by each library, the same work from the same weights.

What megatron-core and DTensor need to run here stands in `megatron/` and `dtensor.py`; the tests
of shardlab take them from here as oracles. A `build` gives the contestants by name, for `rounds`.
"""
