"""Diagrams: the drawings that the workbook keeps, and mermaid for a diagram that has none.

`python -m pages diagrams` draws the workbook's own diagrams. The site writes a drawing into the
page in place of its source, so that it needs no script. A diagram without a drawing, such as a new
one of a learner, is drawn in the browser: docs/assets/javascripts/diagrams.js loads mermaid when
such a diagram nears the window.

mermaid2's own fence doesn't escape the text, so markup in a label would become part of the page.
mermaid2 also parses every page with a diagram and writes it again. That is slow, and the page
written isn't the page that was cleaned. mermaid2 only looks for diagrams and puts scripts at the
end of the body, so it gets a body with one diagram for each that has no drawing. The page gets only
the script's address: the inline script repeats diagrams.js, and the policy refuses it.
"""

import json
import re
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from markdown import Markdown
from markupsafe import Markup

from notelab.mermaid import version
from sitelab.pages.tree import Element
from sitelab.rendering import load_words

DRAWINGS = Path(__file__).with_name("drawings.json")
DRAW = Path(__file__).with_name("draw.js")

_DIAGRAM = '<div class="mermaid"'
_SCRIPT = re.compile(r"<script src=([^>]*)></script>")
_ID = re.compile(r"(?<=[\"#])ID-")


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
    """Return the page with the address of the script that mermaid2 added to its skeleton."""
    before, end, after = output.rpartition("</body>")
    sources = "".join(
        f"<template data-mermaid={src}></template>" for src in _SCRIPT.findall(skeleton)
    )
    return before + sources + end + after if end else output


def find_key(source: str) -> str:
    """Return the key of a diagram's drawing: a digest of its source and of what draws it."""
    return sha256(f"{_find_tool()}\n{source.strip()}".encode()).hexdigest()[:16]


@cache
def _find_tool() -> str:
    return f"{version()}{DRAW.read_text('utf-8')}"


@cache
def read_drawings() -> dict[str, dict[str, str]]:
    """Return the drawings by key: `words`, what the diagram says, and `svg`."""
    if not DRAWINGS.is_file():
        return {}
    drawings: dict[str, dict[str, str]] = json.loads(DRAWINGS.read_text("utf-8"))
    return drawings


def embed_drawings(page: Element, language: str) -> None:
    """Replace the source of each diagram that has a drawing by the drawing and its words.

    The words are hidden. The search finds them, and a screen reader reads them as the description
    of the drawing. The ids of each drawing are unique on the page.
    """
    drawings, count = read_drawings(), 0
    label = escape(load_words(language)["diagram"]["label"])

    def embed(element: Element) -> list[Element | str] | None:
        nonlocal count
        if element.tag != "div" or element.classes != ["mermaid"]:
            return None
        if (drawing := drawings.get(find_key(element.text()))) is None:
            return None
        count += 1
        name = f"diagram-{count}"
        attributes = f'role="img" aria-label="{label}" aria-describedby="{name}"'
        svg = _ID.sub(f"{name}-", drawing["svg"])
        svg = svg.replace("<svg", f'<svg {attributes} data-search-exclude=""', 1)
        words = Element("p", {"id": name, "hidden": ""}, [drawing["words"]])
        picture = Markup(svg)  # noqa: S704  (the workbook's own)
        return [Element("div", {"class": "mermaid drawn"}, [picture, words])]

    page.replace(embed)
