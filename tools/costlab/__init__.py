"""The bench: measure what sharded training costs, fit it, judge what is claimed about it, draw it."""
