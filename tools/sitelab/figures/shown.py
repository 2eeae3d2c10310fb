"""A page's figures: found by their marks, replaced by a picture and what a script plays with."""

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
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
)


class Figure(NamedTuple):
    """What one figure is made of.

    Attributes:
        html: what it shows at first, and for ever where no script runs.
        data: what its script needs; None: nobody plays with it.

    """

    html: str
    data: dict[str, Any] | None = None


# Makes a figure, given the words of the page's language and the repository.
Maker = Callable[[dict[str, str], Path], Figure]


@cache
def words(language: str) -> dict[str, dict[str, str]]:
    """Return what is said in a language, by figure."""
    text = (Path(__file__).parent / "words.toml").read_text("utf-8")
    return {
        figure: {key: said[language] for key, said in entries.items()}
        for figure, entries in tomllib.loads(text).items()
    }


def picture(figure: str, said: dict[str, str], **given: Any) -> str:
    """Return the HTML of a figure's template, one line put behind the other."""
    lines = _TEMPLATES.get_template(f"{figure}.html.jinja").render(given, said=said).splitlines()
    return "".join(line.strip() for line in lines)


def embed_figures(
    page: Element, makers: dict[str, Maker], *, language: str, url: str, root: Path
) -> list[str]:
    """Put a page's figures in the place of their marks; return the marks that name no figure.

    Args:
        page: the page's content.
        makers: by name, `makers.MAKERS`.
        language: of the page: "en" or "es".
        url: of the page, relative to the site's root.
        root: of the repository.

    """
    unknown: list[str] = []

    def embed(mark: Element) -> list[Element | str] | None:
        name = mark.attributes.get("id", "")
        if mark.tag != "div" or mark.classes != ["figure"] or not name.startswith(_MARK):
            return None
        name = name.removeprefix(_MARK)
        if name not in makers:
            unknown.append(name)
            return None
        said = words(language)["controls"] | words(language)[name]
        return [Markup(_wrapped(name, makers[name](said, root), said, url))]  # noqa: S704

    page.replace(embed)
    return unknown


def _wrapped(name: str, figure: Figure, said: dict[str, str], url: str) -> str:
    caption = f"<figcaption>{escape(said['caption'])}</figcaption>"
    opening = f'<figure class="play" id="figure-{name}" data-figure="{name}" data-search-exclude>'
    if figure.data is None:
        return f"{opening}{figure.html}{caption}</figure>"
    # Whatever the data say, they end where the element ends.
    data = json.dumps({**figure.data, "words": said}, separators=(",", ":")).replace("<", "\\u003c")
    scripts = "".join(
        f'<script defer src="{escape(get_relative_url(f"{SCRIPTS}/{file}.js", url))}"></script>'
        for file in ("figures", name)
    )
    held = f'<script type="application/json">{data}</script>'
    return f"{opening}{figure.html}{caption}{held}</figure>{scripts}"
