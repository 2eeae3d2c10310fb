"""What a page says: its blocks and inline text, front matter, notes, citations and permalinks."""
