"""Implementations that only `make benchmark` measures; the bench measures the rest."""
