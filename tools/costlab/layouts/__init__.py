"""Layouts of a training run on cards: do they fit in memory, and how long does a step take?"""
