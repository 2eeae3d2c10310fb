"""What a blob is: the id that git gives to contents, and whether they are only a pointer."""

import re
from hashlib import sha1

_LONGEST_POINTER = 1024  # bytes, as Git LFS defines it
_POINTERS = {
    "Git LFS": re.compile(
        rb"version https?://[\w.-]+/(?:spec/)?v\d+\n(?:[a-z0-9.-]+ [^\n]*\n)*?"
        rb"oid sha256:[0-9a-f]{64}\n"
        rb"(?:[a-z0-9.-]+ [^\n]*\n?)*\Z"
    ),
    "git-annex": re.compile(rb"/annex/objects/[^\n]+\n?\Z"),
}


def blob_id(data: bytes) -> str:
    """Return the git blob id (40 hex digits) of `data`."""
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def pointer_kind(data: bytes) -> str:
    """Return which program wrote `data` in the place of a file's contents; '' for a whole file.

    git holds such a pointer if the contents are stored elsewhere.
    """
    if len(data) > _LONGEST_POINTER:
        return ""
    return next((kind for kind, form in _POINTERS.items() if form.match(data)), "")
