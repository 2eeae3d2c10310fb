"""The process grid: the arithmetic of ranks, the axes of a world, and which sizes must divide."""
