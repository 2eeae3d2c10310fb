"""Sharded data parallelism: time, overlap and memory."""
