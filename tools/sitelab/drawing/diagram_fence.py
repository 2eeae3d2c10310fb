"""A mermaid fence as HTML: the diagram's text, escaped, for the page's script to draw.

mermaid2's own fence leaves the text as it is, so that markup in a label would be the page's.
"""

from html import escape
from typing import Any

from markdown import Markdown


def fence(
    source: str, language: str, css_class: str, options: dict[str, str], md: Markdown, **more: Any
) -> str:
    """Return the element that mermaid draws into; superfences calls this for ```` ```mermaid ````.

    As a <div>: a <pre class="mermaid"> is taken by Material, which loads its own from afar.
    """
    return f'<div class="{escape(css_class)}">{escape(source)}\n</div>'
