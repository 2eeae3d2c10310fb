"""The theme: what the site changes in Material's templates, its search and its server."""
