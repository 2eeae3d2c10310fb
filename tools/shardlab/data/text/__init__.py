"""From text to a corpus: tokenizers, and the encoding of text in pieces by several processes."""
