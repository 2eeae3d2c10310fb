"""Draws the formulas of a page: replaces the elements that arithmatex marks by KaTeX's HTML."""

import re
from collections.abc import Callable

from markupsafe import Markup

from sitelab.katex import RenderedFormula
from sitelab.pages.tree import Element
from sitelab.rendering import load_words

_FORMULA = re.compile(r"\s*\\([(\[])(.*)\\[)\]]\s*", re.DOTALL)
_PUNCTUATION = re.compile(r"[,.;:!?)»”]*")  # of a sentence, or of a part of it


def draw_formulas(
    page: Element, draw: Callable[..., RenderedFormula], *, language: str
) -> list[tuple[str, str]]:
    """Draw the formulas of a page; return those that can't be drawn, each with the error.

    A formula that can't be drawn is replaced by its source and the error. `draw` is called as
    `Formulas.draw`. The search finds the words around a formula, not its letters. Punctuation after
    a formula stays on the formula's line.
    """
    wrong: list[tuple[str, str]] = []
    for parent in [page, *page.descendants()]:
        for index, child in enumerate(parent.children):
            if not isinstance(child, Element) or child.classes != ["arithmatex"]:
                continue
            if not (match := _FORMULA.fullmatch(child.plain_text() or "")):
                continue
            tex = match[2].strip()
            answer = draw(tex, display=match[1] == "[")
            if answer.error:
                wrong.append((tex, answer.error))
                parent.children[index] = _render_error(child.tag, tex, answer.error, language)
            elif match[1] == "[":
                parent.children[index] = _render_formula("div", answer)
            else:
                parent.children[index] = _render_with_punctuation(parent.children, index, answer)
    return wrong


def _render_error(tag: str, tex: str, error: str, language: str) -> Element:
    why = f" {load_words(language)['formula']['error']}: {error}"
    return Element(tag, {"class": "formula-error"}, [Element("code", {}, [tex]), why])


def _render_formula(tag: str, answer: RenderedFormula) -> Element:
    marks = {"class": "formula", "data-search-exclude": ""}
    return Element(tag, marks, [Markup(answer.html)])  # noqa: S704  (KaTeX escaped it)


def _render_with_punctuation(
    nodes: list[Element | str], index: int, answer: RenderedFormula
) -> Element:
    """Return an inline formula together with the punctuation that follows it in `nodes`."""
    formula = _render_formula("span", answer)
    after = nodes[index + 1] if index + 1 < len(nodes) else ""
    if isinstance(after, Element | Markup) or not (end := _PUNCTUATION.match(after)) or not end[0]:
        return formula
    nodes[index + 1] = after[end.end() :]
    return Element("span", {"class": "formula-end"}, [formula, end[0]])
