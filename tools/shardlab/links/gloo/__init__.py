"""Collectives over gloo, made of exchanges or by way of one rank."""
