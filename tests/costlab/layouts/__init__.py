"""Tests of predicted step times."""
