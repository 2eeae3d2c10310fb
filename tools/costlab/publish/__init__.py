"""What a reader sees of a result: pages, tables, the terminal, numbers that pages quote."""
