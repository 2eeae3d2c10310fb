"""Pages that show what the code of a lab or a theory page prints or computes."""
