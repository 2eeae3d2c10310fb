"""The work of each command, without the parsing of its arguments."""
