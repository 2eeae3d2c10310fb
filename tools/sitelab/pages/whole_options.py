"""A command's option stays on one line: a browser may break after each of its hyphens."""

import re

_CODE = re.compile(r"(?<!</span>)(?<!<pre>)<code>([^<]*)</code>")  # no block of it
_BLOCK = re.compile(r'<div class="language-bash highlight">.*?</div>', re.DOTALL)
_TEXT = re.compile(r">([^<]+)<")
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def kept(html: str) -> str:
    """Return the page's HTML with each option in code font within a span that doesn't break."""
    html = _CODE.sub(lambda code: f"<code>{_marked(code[1])}</code>", html)
    return _BLOCK.sub(lambda block: _TEXT.sub(lambda text: f">{_marked(text[1])}<", block[0]), html)


def _marked(text: str) -> str:
    return _OPTION.sub(r'<span class="option">\g<0></span>', text)
