"""Ours beside the real thing, in one run: `make benchmark`."""
