"""The bench: measure what sharded training costs, fit it, judge the claims about it, draw it."""
