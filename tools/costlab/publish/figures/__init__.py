"""The figures of the results page."""
