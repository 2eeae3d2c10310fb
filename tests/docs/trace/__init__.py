"""A recorded step of lab 01: condensed for theory 10, and compared with that page."""
