"""The structure of cited files: the names on each line and, by language, symbols and statements."""
