"""The package index: where a published wheel is, and a few ranges of it."""
