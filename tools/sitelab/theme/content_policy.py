"""Writes each page's content security policy: the page loads and runs only the site's own files.

`allowed_html` removes everything that runs from a page. The policy is the second barrier: an inline
script runs only if it is one of the theme's. The policy names the hashes of these scripts, which
are read from the theme's templates and never from the page.
"""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path

# The theme and mermaid have inline styles, which 'unsafe-inline' allows. Material draws some icons
# from data, and its search is a worker.
POLICY = (
    "default-src 'self'; script-src 'self'{hashes}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'"
)
# Scripts with an address or of data don't match.
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_PLACEHOLDER = re.compile(r"\{\{.*?\}\}")
_ADDRESS = r"[\w./-]*"  # the theme fills a script's braces with the path to the site's root


@cache
def _theme_scripts(folders: tuple[str, ...]) -> re.Pattern[str]:
    templates = (file for folder in folders for file in Path(folder).rglob("*.html"))
    scripts = {script for file in templates for script in _SCRIPT.findall(file.read_text("utf-8"))}
    forms = (_ADDRESS.join(map(re.escape, _PLACEHOLDER.split(script))) for script in scripts)
    return re.compile("|".join(forms), re.DOTALL)


def add_policy(output: str, folders: tuple[str, ...]) -> str:
    """Return a whole page with its policy at the top of its head, before any script.

    Args:
        output: the page.
        folders: the folders of the theme's templates.
    """
    allowed = _theme_scripts(folders)
    scripts = filter(allowed.fullmatch, _SCRIPT.findall(output))
    hashes = "".join(f" {hash_script(script)}" for script in dict.fromkeys(scripts))
    policy = POLICY.format(hashes=hashes)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return output.replace("<head>", f"<head>{meta}", 1)


def hash_script(script: str) -> str:
    """Return a script's hash in the form of a policy."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
