"""Reading notes that prove themselves: notes, the source they cite, the rules that judge."""

__version__ = "0.4.0.dev0"
