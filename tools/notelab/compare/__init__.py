"""Compares a learner's notes with a solution, by the lines that both cite."""
