"""A Slurm of two nodes on one host, and what runs under it."""
