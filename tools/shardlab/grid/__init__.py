"""Who is who: the arithmetic of ranks, a world of them with its axes, what must divide what."""
