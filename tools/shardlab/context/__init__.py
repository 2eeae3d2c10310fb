"""Context parallelism: exact attention over sequences that are cut over ranks, in three ways."""
