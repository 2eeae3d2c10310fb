"""Sweeps that others measured."""
