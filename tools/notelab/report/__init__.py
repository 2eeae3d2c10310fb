"""Renders the outcome of a check for a person, a program, a code host or an archive of scans."""
