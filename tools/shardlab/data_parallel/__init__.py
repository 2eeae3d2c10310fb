"""Data parallelism: gradients reduced in buckets during backward; their norm; equal replicas."""
