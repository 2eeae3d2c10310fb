"""What a page may ask for, told to the browser: the site itself, and no other host.

`allowed_html` lets a page bring nothing that runs. A diagram's own styles could still name a
picture elsewhere, and this is where the promise to be quiet is kept whatever a page says.
"""

# Material has scripts and styles inline, and draws some icons from data; its search is a worker.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'"
)


def stated(output: str) -> str:
    """Return a whole page with the policy at the top of its head, before anything is asked for."""
    meta = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    return output.replace("<head>", f"<head>{meta}", 1)
