"""Renders a mermaid fence as HTML: the diagram's text, escaped, for the page's script to draw.

mermaid2's own fence doesn't escape the text, so markup in a label would become part of the page.
"""

from html import escape
from typing import Any

from markdown import Markdown


def render_fence(
    source: str, language: str, css_class: str, options: dict[str, str], md: Markdown, **more: Any
) -> str:
    """Return the element that mermaid draws into; superfences calls this for ```` ```mermaid ````.

    It is a <div>: Material takes a <pre class="mermaid"> and loads mermaid from another host.
    """
    return f'<div class="{escape(css_class)}">{escape(source)}\n</div>'
