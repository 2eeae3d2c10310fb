"""Computes the id that git gives to a file's contents."""

from hashlib import sha1


def blob_id(data: bytes) -> str:
    """Return the git blob id (40 hex digits) of `data`."""
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
