"""Plants faults in a copy of the real notes, and counts which of them the checker catches."""
