"""What is said, and whether the measurements bear it out; and two runs side by side."""
