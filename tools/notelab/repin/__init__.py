"""Moves a lab's citations to another commit of a source, and lists what must be read again."""
