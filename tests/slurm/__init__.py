"""A Slurm of two nodes on one host, and the jobs that run on it."""
