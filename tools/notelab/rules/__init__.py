"""The rules, one family per module. Each takes what is known of a page and yields findings."""
