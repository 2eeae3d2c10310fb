"""Recall: a page's questions asked from memory, and asked again when they are due."""
