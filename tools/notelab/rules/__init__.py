"""The rules, one family a file. Each is a function from what is known of a page to findings."""
