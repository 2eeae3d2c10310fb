"""Escapes a page's title and metadata, because Material puts them into pages as HTML.

A title comes from the front matter (raw), from the first heading (already escaped) or from the
file's name (raw). It appears in every page's navigation and in the search index.
"""

from collections.abc import Iterable
from html import escape, unescape
from itertools import chain
from typing import Any

import msgspec
from mkdocs.exceptions import Abort
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink

# A page can't set `template`, `hide`, `robots` and similar keys: they belong to the site.
ALLOWED_METADATA = ("title", "description")


class _Keywords(msgspec.Struct):
    tags: list[str] = []
    sections: dict[str, list[str]] = {}


def escape_once(value: object) -> str:
    """Return `value` as HTML text, whether or not it was escaped before.

    >>> escape_once("<b>A & B</b>"), escape_once("&lt;b&gt;A &amp; B&lt;/b&gt;")
    ('&lt;b&gt;A &amp; B&lt;/b&gt;', '&lt;b&gt;A &amp; B&lt;/b&gt;')
    """
    return escape(unescape(str(value)))


def make_plain(page: Page) -> None:
    """Make a rendered page's title, metadata and table of contents plain text."""
    title = escape_once(page.title or "")
    set_keys = [key for key in ALLOWED_METADATA if page.meta.get(key)]
    meta: dict[str, Any] = {key: escape_once(page.meta[key]) for key in set_keys}
    if page.file.src_uri.startswith("docs/"):  # no note sets keywords
        meta |= _read_keywords(page)
    # The title is always set: Material strips tags from other titles, which unescapes the rest.
    page.meta = {"title": title} | meta
    page.title = title
    _make_links_plain(page.toc.items)


def _make_links_plain(links: Iterable[AnchorLink]) -> None:
    for link in links:
        link.title = escape_once(link.title)
        _make_links_plain(link.children)


def _read_keywords(page: Page) -> dict[str, Any]:
    """Return the words that find a page: all of them (`tags`), and those of its `sections`.

    Raises:
        Abort: they are no list of words.
    """
    try:
        meta = msgspec.convert(page.meta, _Keywords)
    except msgspec.ValidationError as error:
        raise Abort(f"{page.file.src_uri}, front matter: {error}") from None
    sections = {name: [*map(escape_once, words)] for name, words in meta.sections.items()}
    tags = [*map(escape_once, meta.tags), *chain(*sections.values())]
    return {"tags": tags, "sections": sections} if tags else {}
