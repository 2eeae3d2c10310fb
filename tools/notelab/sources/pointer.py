"""Recognizes pointers: git holds one in the place of a file whose contents are stored elsewhere."""

import re

_LONGEST = 1024  # bytes of a pointer, as Git LFS defines it
_FORMS = {
    "Git LFS": re.compile(
        rb"version https?://[\w.-]+/(?:spec/)?v\d+\n(?:[a-z0-9.-]+ [^\n]*\n)*?"
        rb"oid sha256:[0-9a-f]{64}\n"
        rb"(?:[a-z0-9.-]+ [^\n]*\n?)*\Z"
    ),
    "git-annex": re.compile(rb"/annex/objects/[^\n]+\n?\Z"),
}


def pointer_kind(data: bytes) -> str:
    """Return which program wrote a file as a pointer; '' for a file that is no pointer."""
    if len(data) > _LONGEST:
        return ""
    return next((kind for kind, form in _FORMS.items() if form.match(data)), "")
