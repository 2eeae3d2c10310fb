"""Sweeps that others measured: read, fitted, drawn, and how far their fit may be trusted."""
