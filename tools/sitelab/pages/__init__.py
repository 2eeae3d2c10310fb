"""The pages of the site: which there are, what their HTML may hold, where their links lead."""
