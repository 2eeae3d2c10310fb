"""What is asked for, whatever the machine, counted in real runs."""
