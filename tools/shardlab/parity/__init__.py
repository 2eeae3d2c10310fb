"""Prove a sharding: any model on drawn grids equals one process in fp64, or what is wrong is named.

    python -m shardlab.parity my_model.py:build

docs/reference/parity.md says what the file has to hold.
"""
