"""A source's own repository, or a clone of it: never more of git than reading a pinned commit."""
