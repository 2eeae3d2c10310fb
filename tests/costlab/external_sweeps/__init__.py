"""Tests of sweeps that other programs measured."""
