"""Diagrams: the fence that holds a diagram's text, and mermaid2's script, for pages that have one.

mermaid2's own fence doesn't escape the text, so markup in a label would become part of the page.

mermaid2 parses every page with a diagram and writes it again. That is slow, and the page written
isn't the page that was cleaned. mermaid2 only looks for diagrams and puts scripts at the end of the
body, so it gets a body with the same number of diagrams. The page gets only the script with an
address: the inline script repeats docs/assets/javascripts/diagrams.js, and the policy refuses it.
"""

import re
from html import escape
from typing import Any

from markdown import Markdown

_DIAGRAM = '<div class="mermaid"'
_SCRIPT = re.compile(r"<script src=[^>]*></script>")


def render_fence(
    source: str, language: str, css_class: str, options: dict[str, str], md: Markdown, **more: Any
) -> str:
    """Return the element that mermaid draws into; superfences calls this for ```` ```mermaid ````.

    It is a <div>: Material takes a <pre class="mermaid"> and loads mermaid from another host.
    """
    return f'<div class="{escape(css_class)}">{escape(source)}\n</div>'


def make_skeleton(output: str) -> str:
    """Return a body with one empty diagram for each diagram of the page, and nothing else."""
    diagrams = output.count(_DIAGRAM)
    return f"<body>{(_DIAGRAM + '></div>') * diagrams}</body>" if diagrams else ""


def add_scripts(output: str, skeleton: str) -> str:
    """Return the page with the script that mermaid2 added to the page's skeleton."""
    before, end, after = output.rpartition("</body>")
    return before + "".join(_SCRIPT.findall(skeleton)) + end + after if end else output
