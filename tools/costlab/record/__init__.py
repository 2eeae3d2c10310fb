"""What a run leaves behind: metrics, how they are reckoned and written, whose they are, on what."""
