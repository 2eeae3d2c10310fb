"""Other ways to carry a message than the backend takes by itself."""
