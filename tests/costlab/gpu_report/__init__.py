"""Tests of tools/gpu-report."""
