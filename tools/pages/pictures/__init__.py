"""Pictures of the README, and the browser that reads the site."""
