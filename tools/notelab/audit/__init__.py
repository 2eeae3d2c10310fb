"""Audits citations that carry no commit, and adopts notes that were written without the checker."""
