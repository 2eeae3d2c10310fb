"""The theme's own: its templates, its search, and what has to be mended in what it writes."""
