"""What a page may ask for and run, told to the browser: the site itself, and no other host.

`allowed_html` lets a page bring nothing that runs. If something came through all the same, this is
where the promise is kept: a script within a page runs only if it is one of the theme's own. Those
are read from the theme's templates, never from the page, and the policy names their hashes.
"""

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

# The theme and mermaid have styles inline, which 'unsafe-inline' lets in; Material draws some icons
# from data, and its search is a worker.
POLICY = (
    "default-src 'self'; script-src 'self'{hashes}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'"
)
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)  # with an address, or of data: no match
_GIVEN = re.compile(r"\{\{.*?\}\}")
_ADDRESS = r"[\w./-]*"  # what the theme writes in a script's braces: the way to the site's root


class ContentPolicy:
    """The policy of a theme's pages.

    Args:
        folders: where the theme's templates are.
    """

    def __init__(self, folders: Iterable[str]) -> None:
        templates = (file for folder in folders for file in Path(folder).rglob("*.html"))
        scripts = {script for file in templates for script in _SCRIPT.findall(file.read_text())}
        forms = (_ADDRESS.join(map(re.escape, _GIVEN.split(script))) for script in scripts)
        self._own = re.compile("|".join(forms), re.DOTALL)

    def state(self, output: str) -> str:
        """Return a whole page with its policy at the top of its head, before anything runs."""
        own = (script for script in _SCRIPT.findall(output) if self._own.fullmatch(script))
        hashes = "".join(f" {hash_of(script)}" for script in dict.fromkeys(own))
        policy = POLICY.format(hashes=hashes)
        meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        return output.replace("<head>", f"<head>{meta}", 1)


def hash_of(script: str) -> str:
    """Return how a policy names a script that may run."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
