"""What each command does, apart from how its arguments are read."""
