"""Draws the formulas of a page: replaces the elements that arithmatex marks by KaTeX's HTML.

In sentences, the letters of formulas look as KaTeX draws them.
"""

import re
from collections.abc import Callable

from markupsafe import Markup

from sitelab.katex import RenderedFormula
from sitelab.pages.tree import Element
from sitelab.rendering import load_words

_FORMULA = re.compile(r"\s*\\([(\[])(.*)\\[)\]]\s*", re.DOTALL)
_PRODUCTS = r"sb[fgh]|hB|PT|PD|sh|gh|fh|gP|v[hmp]"
_NOT_AFTER = r"(?<![^\W\d²³])(?<![\d'’.#-])(?<!\d[ \xa0])(?!(?<=[a-zB]/)s)(?!(?<=\().\))"
# A sentence that begins with the Spanish word for "and".
_AND = r"(?!(?:(?<=¿)|(?<=[.?!]\s))Y\s[a-z])"
_NOT_BEFORE = r"(?![^\W²³₀-₉⁰-⁹]|['’-]\w)"
# Single letters that aren't words of the language.
_LETTERS = {"en": "b-zB-HJ-Zℓ", "es": "b-df-np-tv-xzB-HJ-NP-Zℓ"}
_VARIABLE = {
    language: re.compile(
        rf"({_NOT_AFTER}{_AND}(?:{_PRODUCTS}|[{letters}]){_NOT_BEFORE}"
        rf"|(?<=\d)(?<![A-Z]\d)(?:{_PRODUCTS}|as|[nthpmHPS]){_NOT_BEFORE}|(?<=²)b\b"
        rf"|(?<=\d[ \xa0])(?:{_PRODUCTS}){_NOT_BEFORE}|(?<=\(\d)B(?=\)))"
    )
    for language, letters in _LETTERS.items()
}


def set_letters(page: Element, language: str) -> None:
    """Put the variables in a page's sentences and tables into `<i class="letter">`."""

    def split(text: str) -> list[Element | str]:
        parts = enumerate(_VARIABLE[language].split(text))
        return [Element("i", {"class": "letter"}, [part]) if n % 2 else part for n, part in parts]

    page.replace_texts(split, frozenset({"pre", "code", "div", "h1", "h2", "h3"}))


def draw_formulas(
    page: Element, draw: Callable[..., RenderedFormula], *, language: str
) -> list[tuple[str, str]]:
    """Draw the formulas of a page; return those that can't be drawn, each with the error.

    A formula that can't be drawn is replaced by its source and the error. `draw` is called as
    `Formulas.draw`. The search finds the words around a formula, not its letters.
    """
    wrong: list[tuple[str, str]] = []
    for parent in [page, *page.descendants()]:
        for index, child in enumerate(parent.children):
            if not isinstance(child, Element) or child.classes != ["arithmatex"]:
                continue
            if not (match := _FORMULA.fullmatch(child.plain_text() or "")):
                continue
            answer = draw(tex := match[2].strip(), display=match[1] == "[")
            if answer.error:
                wrong.append((tex, answer.error))
                parent.children[index] = _render_error(child.tag, tex, answer.error, language)
            else:
                tag = "div" if match[1] == "[" else "span"
                parent.children[index] = _render_formula(tag, answer)
    return wrong


def _render_error(tag: str, tex: str, error: str, language: str) -> Element:
    why = f" {load_words(language)['formula']['error']}: {error}"
    return Element(tag, {"class": "formula-error"}, [Element("code", {}, [tex]), why])


def _render_formula(tag: str, answer: RenderedFormula) -> Element:
    html = Markup(answer.html)  # noqa: S704  (KaTeX escaped it)
    return Element(tag, {"class": "formula", "data-search-exclude": ""}, [html])
