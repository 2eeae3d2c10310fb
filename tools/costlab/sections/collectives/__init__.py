"""Collectives over every link, by size."""
