"""Figures to play with: drawn here for who only reads, handed to a script as data for who plays.

A page marks the place with `<div class="figure" id="figure-memory">…</div>`. What the figures know
they ask of `shardlab`'s arithmetic, which imports no torch, and of the committed results.
"""
