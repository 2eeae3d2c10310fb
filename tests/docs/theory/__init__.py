"""Tests of the theory's worked problems."""
