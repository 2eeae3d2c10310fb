"""Parses mermaid diagrams with mermaid itself; checker and site share the bundle in this folder."""

from functools import cache
from hashlib import blake2b, sha256
from pathlib import Path

HERE = Path(__file__).parent
BUNDLE = HERE / "mermaid.min.js"


@cache
def fingerprint() -> str:
    """Return a digest of all that a parse result depends on besides the diagram; caches use it."""
    digest = blake2b(digest_size=16)
    scripts = ("dom.js", "anchored.js", "copied.js", "labels.js", "parse.js")
    for name in ("VERSION", *scripts, "engine.py"):
        digest.update(sha256((HERE / name).read_bytes()).digest())
    return digest.hexdigest()


def version() -> tuple[str, str]:
    """Return the version of the vendored mermaid and its bundle's SHA-256, both from VERSION."""
    number, digest = (HERE / "VERSION").read_text("ascii").split()
    return number, digest
