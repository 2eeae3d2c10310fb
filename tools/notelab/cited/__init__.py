"""What a cited file is made of: the names on its lines, and by language its statements."""
