"""Tensor parallelism: conjugate operators, linear layers, the vocabulary, sharded parameters."""
