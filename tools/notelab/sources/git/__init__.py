"""Reads pinned commits from a source's repository or a clone; nothing else of git is used."""
