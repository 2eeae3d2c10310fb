"""Writes the published pages that are made by code: `python -m pages` lists them."""
