"""A generated page: it names the SHA-256 of each input and of itself."""

from hashlib import sha256


def generated_page(body: str, *, title: str = "", suffix: str = "json", **inputs: bytes) -> str:
    """Return a page generated from `inputs`, each the content of NAME.SUFFIX."""
    input_lines = "".join(
        f"<!-- generated from {name}.{suffix} sha256:{sha256(data).hexdigest()} -->\n"
        for name, data in inputs.items()
    )
    front = f"---\ntitle: {title}\n---\n\n" if title else ""
    digest = sha256(f"{front}{input_lines}\n{body}".encode()).hexdigest()
    return f"{front}{input_lines}<!-- this page without this line sha256:{digest} -->\n\n{body}"
