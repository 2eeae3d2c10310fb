"""Tests of tools/notelab/audit."""
