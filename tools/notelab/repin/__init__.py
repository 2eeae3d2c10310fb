"""Carry a lab's citations to another commit of a source, and say what must be read again."""
