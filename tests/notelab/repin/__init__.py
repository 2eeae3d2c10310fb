"""Tests of notelab.repin: citations carried to another commit."""
