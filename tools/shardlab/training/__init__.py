"""One training step over a grid, and what another grid can load."""
