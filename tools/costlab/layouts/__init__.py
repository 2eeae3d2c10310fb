"""Layouts: how long a step takes under each, and how far that may be off."""
