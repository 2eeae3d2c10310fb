"""Mermaid diagrams, parsed by mermaid itself; its bundle lies here, once, for checker and site."""

from functools import cache
from hashlib import blake2b, sha256
from pathlib import Path

HERE = Path(__file__).parent
BUNDLE = HERE / "mermaid.min.js"


@cache
def fingerprint() -> str:
    """Return what a parse result depends on besides the diagram: key a cache of results with it."""
    digest = blake2b(digest_size=16)
    scripts = ("dom.js", "anchored.js", "copied.js", "labels.js", "parse.js")
    for name in ("VERSION", *scripts, "engine.py"):
        digest.update(sha256((HERE / name).read_bytes()).digest())
    return digest.hexdigest()


def version() -> tuple[str, str]:
    """Return the vendored mermaid's version and its bundle's SHA-256, both from VERSION."""
    number, digest = (HERE / "VERSION").read_text("ascii").split()
    return number, digest
