"""The formulas of a page: found as arithmatex marks them, replaced by what KaTeX makes of them."""

import re
from collections.abc import Callable
from html import escape

from markupsafe import Markup

from sitelab.katex import Drawn
from sitelab.pages.tree import Element

FOLDER = "assets/katex"
SAID = {"en": "This formula can't be drawn", "es": "Esta fórmula no se puede dibujar"}
_FORMULA = re.compile(r"\s*\\([(\[])(.*)\\[)\]]\s*", re.DOTALL)
_END = re.compile(r"[,.;:!?)»”]*")  # of a sentence, or of a part of it


def draw_formulas(
    page: Element, draw: Callable[..., Drawn], *, language: str
) -> list[tuple[str, str]]:
    """Draw the formulas of a page; return those that can't be drawn, each with why.

    Each of those shows its source and why, in its place. `draw` is called as `Formulas.draw`.
    Search finds the words around a formula, not its letters. What ends a sentence or a part of it
    stays on the line of a formula before it.
    """
    wrong: list[tuple[str, str]] = []
    for parent in [page, *page.below()]:
        for index, child in enumerate(parent.children):
            if not isinstance(child, Element) or child.classes != ["arithmatex"]:
                continue
            if not (match := _FORMULA.fullmatch(child.plain_text() or "")):
                continue
            tex = match[2].strip()
            answer = draw(tex, display=match[1] == "[")
            if answer.error:
                wrong.append((tex, answer.error))
                parent.children[index] = _refused(child.tag, tex, answer.error, language)
            elif match[1] == "[":
                parent.children[index] = _shown("div", answer)
            else:
                parent.children[index] = _kept_with_end(parent.children, index, answer)
    return wrong


def _refused(tag: str, tex: str, error: str, language: str) -> Element:
    why = f" {SAID[language]}: {error}"
    return Element(tag, {"class": "formula-error"}, [Element("code", {}, [tex]), why])


def _shown(tag: str, answer: Drawn) -> Element:
    marks = {"class": "formula", "data-search-exclude": ""}
    return Element(tag, marks, [Markup(answer.html)])  # noqa: S704  (KaTeX escaped it)


def _kept_with_end(nodes: list[Element | str], index: int, answer: Drawn) -> Element:
    """Return a formula within a line, and take from the text after it what ends a sentence."""
    shown = _shown("span", answer)
    after = nodes[index + 1] if index + 1 < len(nodes) else ""
    if isinstance(after, Element | Markup) or not (end := _END.match(after)) or not end[0]:
        return shown
    nodes[index + 1] = after[end.end() :]
    return Element("span", {"class": "formula-end"}, [shown, end[0]])


def styled(output: str, base: str) -> str:
    """Return a whole page with KaTeX's style sheet, where it has a formula and only there.

    Args:
        output: the page.
        base: from the page to the site's root, relative.
    """
    if '<span class="katex' not in output:
        return output
    link = f'<link rel="stylesheet" href="{escape(base)}/{FOLDER}/katex.min.css">'
    return output.replace("</head>", f"{link}</head>", 1)
