"""Tensor parallelism: a step's time and its parts, and where it begins to pay."""
