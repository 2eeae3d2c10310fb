"""What `grade.py` does on each rank."""

RANKS = 2
