"""Renders 404.html, which a host serves for every missing address of the site.

The address may have any depth, and the site may be in any folder of the host. So the page loads no
file, and finds the front page by looking for the folder above that has a 404.html.
"""

import base64
import hashlib
import re
from pathlib import Path

NAME = "404.html"
_SOURCE = Path(__file__).with_suffix(".html")


def render_page() -> str:
    """Return the page, with a policy that allows only the page's own style and script."""
    html = _SOURCE.read_text("utf-8")
    policy = (
        f"default-src 'none'; style-src {_hash('style', html)}; "
        f"script-src {_hash('script', html)}; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return html.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n    {meta}', 1)


def _hash(tag: str, html: str) -> str:
    """Return the source expression that allows the page's only element of this name."""
    [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"
