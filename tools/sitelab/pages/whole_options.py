"""A command's option stays on one line: a browser may break after each of its hyphens."""

import re

_CODE = re.compile(r"(?<!</span>)(?<!<pre>)<code>([^<]*)</code>")  # no block of it
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def kept(html: str) -> str:
    """Return the page's HTML with each option in code font within a span that doesn't break."""
    whole = r'<span class="option">\g<0></span>'
    return _CODE.sub(lambda code: f"<code>{_OPTION.sub(whole, code[1])}</code>", html)
