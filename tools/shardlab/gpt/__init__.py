"""Attention and feed-forward, a block of them, and a GPT or one stage of it."""
