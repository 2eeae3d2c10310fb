"""Renders the HTML of the site's own parts: jinja templates, and what they say in each language."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sitelab.citations.visible_text import make_visible

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
)
_TEMPLATES.filters["visible"] = make_visible
_TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":")}


@cache
def load_words(language: str) -> dict[str, dict[str, str]]:
    """Return the words of a language, by part of the site and key."""
    text = Path(__file__).with_name("words.toml").read_text("utf-8")
    return {
        part: {key: translations[language] for key, translations in entries.items()}
        for part, entries in tomllib.loads(text).items()
    }


def render(template: str, words: dict[str, str], **values: Any) -> Markup:
    """Return the HTML of a template; what it shows is escaped."""
    html = _TEMPLATES.get_template(f"{template}.html.jinja").render(values, words=words)
    return Markup(html)  # noqa: S704  (escaped)
