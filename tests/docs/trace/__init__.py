"""A recorded step of lab 01: condensed for theory 10, and held to what that page says."""
