"""Text to a corpus: tokenizers, and pieces that several processes encode."""
