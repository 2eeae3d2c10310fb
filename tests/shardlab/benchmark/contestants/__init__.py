"""Who is measured by `make benchmark` alone: the others are of the bench (costlab.contestants)."""
