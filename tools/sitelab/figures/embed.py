"""Embeds figures: replaces each mark in a page by a picture and the data for its script."""

import json
import tomllib
from collections.abc import Callable
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from mkdocs.utils import get_relative_url

from sitelab.pages.tree import Element

SCRIPTS = "assets/javascripts/figures"
_MARK = "figure-"

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1] / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
)


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


@cache
def load_words(language: str) -> dict[str, dict[str, str]]:
    """Return the words of a language, by figure and key."""
    text = (Path(__file__).parents[1] / "words.toml").read_text("utf-8")
    return {
        figure: {key: translations[language] for key, translations in entries.items()}
        for figure, entries in tomllib.loads(text).items()
    }


def render_template(figure: str, words: dict[str, str], **values: Any) -> str:
    """Return the HTML of a figure's template, with its lines joined."""
    lines = _TEMPLATES.get_template(f"{figure}.html.jinja").render(values, words=words).splitlines()
    return "".join(line.strip() for line in lines)


def embed_figures(
    page: Element, makers: dict[str, Maker], *, language: str, url: str, root: Path
) -> list[str]:
    """Replace the marks in a page by their figures; return the names that no figure has.

    Args:
        page: the page's content.
        makers: the figures' makers by name, `makers.MAKERS`.
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
        return [Markup(_wrap_figure(name, makers[name](words, root), words, url))]  # noqa: S704

    page.replace(replace_mark)
    return unknown


def _wrap_figure(name: str, figure: Figure, words: dict[str, str], url: str) -> str:
    caption = f"<figcaption>{escape(words['caption'])}</figcaption>"
    opening_tag = (
        f'<figure class="play" id="figure-{name}" data-figure="{name}" data-search-exclude>'
    )
    if figure.data is None:
        return f"{opening_tag}{figure.html}{caption}</figure>"
    # `<` is escaped, so that nothing in the data can end the element early.
    data = json.dumps({**figure.data, "words": words}, separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    scripts = "".join(
        f'<script defer src="{escape(get_relative_url(f"{SCRIPTS}/{file}.js", url))}"></script>'
        for file in ("figures", name)
    )
    data_script = f'<script type="application/json">{data}</script>'
    return f"{opening_tag}{figure.html}{caption}{data_script}</figure>{scripts}"
