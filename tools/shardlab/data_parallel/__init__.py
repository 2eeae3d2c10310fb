"""Gradients in buckets, reduced during backward; their norm; replicas made or proved equal."""
