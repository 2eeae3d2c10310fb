"""The formulas of a page: found as arithmatex marks them, replaced by what KaTeX makes of them."""

import re
from collections.abc import Callable
from html import escape, unescape

from sitelab.katex import Drawn

FOLDER = "assets/katex"
SAID = {"en": "This formula can't be drawn", "es": "Esta fórmula no se puede dibujar"}
_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>([,.;:!?)»”]*)', re.DOTALL
)


def drawn(html: str, draw: Callable[..., Drawn], *, language: str) -> tuple[str, list[str]]:
    """Return a page's HTML with its formulas drawn, and what is wrong with those that aren't.

    A formula that can't be drawn shows its source and why, in its place. `draw` is called as
    `Formulas.draw`. Search finds the words around a formula, not its letters. What ends a sentence
    or a part of it stays on the line of a formula before it.
    """
    wrong: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        tag, opening, text, end = match[1], match[2], unescape(match[3]).strip(), match[4]
        answer = draw(text, display=opening == "[")
        if answer.error:
            wrong.append(f"{text}: {answer.error}")
            why = escape(f"{SAID[language]}: {answer.error}", quote=False)
            return f'<{tag} class="formula-error"><code>{escape(text)}</code> {why}</{tag}>{end}'
        if opening == "(":
            shown = f'<span class="formula" data-search-exclude>{answer.html}</span>'
            return f'<span class="formula-end">{shown}{end}</span>' if end else shown
        return f'<div class="formula" data-search-exclude>{answer.html}</div>{end}'

    return _FORMULA.sub(replaced, html), wrong


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
