"""Embeds figures: replaces each mark in a page by a picture and the data for its script."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from mkdocs.utils import get_relative_url

from sitelab.pages.tree import Element
from sitelab.rendering import load_words, render

SCRIPTS = "assets/javascripts/figures"
LONG = 18  # letters of a choice that has two columns for itself
_MARK = "figure-"
_BELOW = re.compile(r'(<\w+ class="[^"]*play-below)')  # what stands below the controls


class Figure(NamedTuple):
    """One figure.

    Attributes:
        html: the picture that is shown first, and that stays if no script runs.
        data: the data for the figure's script; None for a figure without controls.

    """

    html: str
    data: dict[str, Any] | None = None


# Makes a figure from the words of the page's language and the repository's folder.
Maker = Callable[[dict[str, str], Path], Figure]


def render_template(figure: str, words: dict[str, str], **values: Any) -> str:
    """Return the HTML of a figure's template, with its lines joined."""
    return "".join(line.strip() for line in render(figure, words, **values).splitlines())


def make_control(
    kind: str, name: str, words: dict[str, str], at: object, values: Iterable[Any] = (), **more: Any
) -> Any:
    """Return the description of a control, from which the page's script makes it.

    Args:
        kind: "choice" (from a list) and "slider", which have `options`, values with their labels;
            "number", of `least` or more in steps of `step` ("any" allows fractions); or "tick".
        name: of the value, and of its label in `words`.
        words: of the page's language.
        at: the value that is shown first.
        values: of the options; `words` have their labels, by `name-value` or by the value alone, or
            the value is its own.
        more: what the kind has besides.
    """
    if values:
        labels = {value: words.get(str(value), str(value)) for value in values}
        labels = {value: words.get(f"{name}-{value}", label) for value, label in labels.items()}
        more = {"options": [*labels.items()], **more}
    is_long = kind == "choice" and max(len(text) for _, text in more["options"]) > LONG
    return {"name": name, "label": words[name], "kind": kind, "at": at, "isLong": is_long, **more}


def embed_figures(
    page: Element, makers: dict[str, Maker], *, language: str, url: str, root: Path
) -> list[str]:
    """Replace the marks in a page by their figures; return the names that no figure has.

    Args:
        page: the page's content.
        makers: the figures' makers by name, `sitelab.figures.MAKERS`.
        language: of the page: "en" or "es".
        url: of the page, relative to the site's root.
        root: of the repository.

    """
    unknown: list[str] = []

    def replace_mark(mark: Element) -> list[Element | str] | None:
        name = mark.attributes.get("id", "")
        if mark.tag != "div" or mark.classes != ["figure"] or not name.startswith(_MARK):
            return None
        name = name.removeprefix(_MARK)
        if name not in makers:
            unknown.append(name)
            return None
        words = load_words(language)["controls"] | load_words(language)[name]
        figure, scripts = makers[name](words, root), get_relative_url(f"{SCRIPTS}/", url)
        place = str(render("controls", words, data=figure.data)) if figure.data else ""
        above, below, rest = (*_BELOW.split(str(figure.html), 1), "", "")[:3]
        picture = f'<div class="play-top">{above}{place}</div>{below}{rest}'
        values = {"name": name, "picture": picture, "data": figure.data, "scripts": scripts}
        return [render("figure", words, **values)]

    page.replace(replace_mark)
    return unknown
