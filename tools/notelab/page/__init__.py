"""Reads a page: its blocks, inline text, front matter, citations and permalinks."""
