"""A unit's parameters, concatenated in one flat tensor that is sharded over the ranks."""
