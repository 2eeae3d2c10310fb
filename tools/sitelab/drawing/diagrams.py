"""Diagrams: the workbook's own are drawings in the page; the browser draws the others by mermaid.

`python -m pages diagrams` draws. A diagram without a drawing is one that somebody writes just now:
its page loads mermaid once the diagram nears the window (docs/assets/javascripts/diagrams.js).

mermaid2's own fence doesn't escape the text, so markup in a label would become part of the page.

mermaid2 parses every page with a diagram and writes it again. That is slow, and the page written
isn't the page that was cleaned. mermaid2 only looks for diagrams and puts scripts at the end of the
body, so it gets a body with the same number of diagrams. The page gets only the script's address:
the inline script repeats diagrams.js, and the policy refuses it.
"""

import json
import re
from functools import cache
from hashlib import sha256
from html import escape, unescape
from pathlib import Path
from typing import Any

from markdown import Markdown
from markupsafe import Markup

from sitelab.pages.tree import Element

DRAWINGS = Path(__file__).with_name("drawings.json")

_DIAGRAM = '<div class="mermaid"'
_SCRIPT = re.compile(r"<script src=([^>]*)></script>")
_WORDS = re.compile(r"<text[^>]*>(.*?)</text>", re.DOTALL)


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


def key_of(source: str) -> str:
    """Return the name under which the drawing of a diagram's text is kept."""
    return sha256(source.strip().encode()).hexdigest()[:12]


@cache
def _load_drawings() -> dict[str, dict[str, str]]:
    drawings: dict[str, dict[str, str]] = json.loads(DRAWINGS.read_text("utf-8"))
    return drawings


def embed_drawings(page: Element) -> None:
    """Replace the text of each diagram that has a drawing by the drawing.

    A drawing's label is all of its words. A gantt has two drawings; the page's width chooses one.
    """
    drawings = _load_drawings()

    def embed(element: Element) -> list[Element | str] | None:
        if element.tag != "div" or element.classes != ["mermaid"]:
            return None
        if (drawing := drawings.get(key_of(element.text()))) is None:
            return None
        first = next(iter(drawing.values()))
        words = [" ".join(re.sub(r"<[^>]*>", " ", text).split()) for text in _WORDS.findall(first)]
        pictures = "".join(
            svg.replace("<svg", f'<svg class="{width}" aria-hidden="true"', 1)
            for width, svg in drawing.items()
        )
        attributes = {
            "class": "mermaid drawn", "role": "img", "aria-label": unescape("; ".join(words)),
        }  # fmt: skip
        return [Element("div", attributes, [Markup(pictures)])]  # noqa: S704  (ours)

    page.replace(embed)
