"""A page's title and metadata as text: Material puts them into pages as HTML, unescaped.

A title comes from the front matter (raw), from the first heading (escaped already) or from the
file's name (raw), and stands in every page's navigation and in the search index.
"""

from collections.abc import Iterable
from html import escape, unescape
from typing import Any

from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink

# `template`, `hide`, `robots` and the like are the site's to say, not a page's.
KEPT = ("title", "description")


def text(value: object) -> str:
    """Return `value` as HTML text, whether or not it was escaped before.

    >>> text("<b>A & B</b>"), text("&lt;b&gt;A &amp; B&lt;/b&gt;")
    ('&lt;b&gt;A &amp; B&lt;/b&gt;', '&lt;b&gt;A &amp; B&lt;/b&gt;')
    """
    return escape(unescape(str(value)))


def make_plain(page: Page) -> None:
    """Make a rendered page's title, metadata and table of contents plain text."""
    title = text(page.title or "")
    meta: dict[str, Any] = {key: text(page.meta[key]) for key in KEPT if page.meta.get(key)}
    # Always there: of a title from elsewhere Material strips tags, which unescapes what is left.
    page.meta = {"title": title} | meta
    page.title = title
    _plain(page.toc.items)


def _plain(links: Iterable[AnchorLink]) -> None:
    for link in links:
        link.title = text(link.title)
        _plain(link.children)
