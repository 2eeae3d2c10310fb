"""A check's outcome, written for a person, a program, a code host or a scanner's archive."""
