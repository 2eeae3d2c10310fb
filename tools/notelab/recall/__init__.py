"""Recall: asks a page's questions from memory, and again when they are due."""
