"""Renders the HTML of the site's own parts: jinja templates, their words, and text safe to show.

In cited text, invisible characters become code points, and long lines are cut.
"""

import tomllib
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

MOST_CHARACTERS = 400  # characters of a line: twice what a wide screen shows
_UNCHANGED = "\t"  # a tab is invisible, but only a wide blank
# Controls (escape, carriage return), formats (bidirectional, zero width), separators of lines and
# of paragraphs, and private characters: they would reorder, hide or fake what a reader sees.
_INVISIBLE_CATEGORIES = ("Cc", "Cf", "Zl", "Zp", "Co", "Cs", "Cn")


def make_visible(text: str) -> str:
    """Return a line of text with each invisible character written as its code point.

    >>> make_visible("a\\x1bb"), make_visible("if \\u202e x")
    ('a⟨U+001B⟩b', 'if ⟨U+202E⟩ x')
    """
    if text.isprintable():
        return text
    return "".join(map(_make_character_visible, text))


def _make_character_visible(character: str) -> str:
    invisible = unicodedata.category(character) in _INVISIBLE_CATEGORIES
    if invisible and character not in _UNCHANGED:
        return f"⟨U+{ord(character):04X}⟩"
    return character


def make_line_visible(line: str) -> str:
    """Return a line as a card shows it: without its carriage return, and cut if it is long."""
    line = line.removesuffix("\r")
    if len(line) <= MOST_CHARACTERS:
        return make_visible(line)
    return f"{make_visible(line[:MOST_CHARACTERS])} … (+{len(line) - MOST_CHARACTERS:,})"


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
