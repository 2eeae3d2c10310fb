"""What mkdocs calls while it builds the site."""
