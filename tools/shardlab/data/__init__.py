"""Corpora of tokens on disk and the samples made from them, with Megatron's bytes and indices."""
