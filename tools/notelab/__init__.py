"""Reading notes that prove themselves: notes, the source they cite, and the rules that judge them."""

__version__ = "0.1.0"
