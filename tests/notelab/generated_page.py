"""A page as a program generates it: it names its inputs, and itself, by SHA-256."""

from hashlib import sha256


def generated_page(body: str, *, title: str = "", **inputs: bytes) -> str:
    """Return a page made from `inputs`, each the contents of NAME.json."""
    made = "".join(
        f"<!-- generated from {name}.json sha256:{sha256(data).hexdigest()} -->\n"
        for name, data in inputs.items()
    )
    front = f"---\ntitle: {title}\n---\n\n" if title else ""
    digest = sha256(f"{front}{made}\n{body}".encode()).hexdigest()
    return f"{front}{made}<!-- this page without this line sha256:{digest} -->\n\n{body}"
