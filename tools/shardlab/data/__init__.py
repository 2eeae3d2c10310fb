"""Tokens on disk and the samples made of them, as Megatron does it to the byte and the index."""
