"""Checked reading notes: the notes, the source files that they cite, and the rules of the check."""

__version__ = "0.4.0.dev0"
