"""Which version of our own analysis made a cached result."""

import sys
from functools import cache
from hashlib import blake2b
from pathlib import Path

from notelab import __version__

_HERE = Path(__file__).parent
# What is remembered by content depends on the content and on these.
_MODULES = (
    "book/evidence",
    "book/resolve",
    "lab/lock",
    "page/admonition",
    "page/citation",
    "rules/case",
    "rules/citations",
    "rules/codes",
    "rules/fit",
    "rules/locked",
    "cited/grammars",
    "cited/names",
    "cited/python",
    "cited/structure",
    "cited/fitting",
    "page/embedded_html",
    "page/front_matter",
    "page/hidden",
    "page/inline",
    "lab/lab_file",
    "page/note",
    "cited/outline",
    "page/permalink",
    "page/reading",
    "page/tokens",
    "page/waiver",
)


@cache
def code_version() -> str:
    """Return a digest of the modules that analyse pages, cited files and lab files.

    The interpreter's version is in it too: it parses the cited Python.
    """
    digest = blake2b(f"{__version__} {sys.version_info[:2]}".encode(), digest_size=16)
    for name in _MODULES:
        try:
            digest.update(blake2b((_HERE / f"{name}.py").read_bytes()).digest())
        except OSError:  # an installation without sources changes only as a whole
            digest.update(b"-")
    return digest.hexdigest()
