"""Cleans a page's HTML: keeps text, and removes anything that runs, loads or covers the page.

Markdown lets a writer use any HTML, and any attribute with `{: … }`. A note may come from a
stranger, and readers trust the site. So each page's HTML is parsed as a browser parses it, and only
the parts listed here are kept. The site adds its own parts (citations, formulas) later.
"""

from functools import partial
from urllib.parse import urlsplit

import nh3

from sitelab.pages import allowed_classes

TAGS = {
    *("a", "abbr", "b", "blockquote", "br", "caption", "cite", "code", "col", "colgroup", "dd"),
    *("del", "details", "dfn", "div", "dl", "dt", "em", "figcaption", "figure", "h1", "h2", "h3"),
    *("h4", "h5", "h6", "hr", "i", "img", "ins", "kbd", "li", "ol", "p", "pre", "q", "s", "samp"),
    *("small", "span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "tfoot", "th"),
    *("thead", "tr", "u", "ul", "var"),
    "autoref",  # mkdocstrings' references, which become links once all pages are there
}
ATTRIBUTES = {
    "*": {"class", "id", "title", "lang", "dir", "role", "hidden"},
    "a": {"href", "name", "download", "rel"},
    "autoref": {"identifier", "optional", "hover"},
    "col": {"span"},
    "colgroup": {"span"},
    "details": {"open"},
    "img": {"src", "alt", "width", "height", "loading"},
    "ol": {"start", "type", "reversed"},
    "td": {"colspan", "rowspan", "style"},
    "th": {"colspan", "rowspan", "scope", "style"},
    "li": {"value"},
}
# A table's alignment; any other style could lay a page over the page.
STYLES = {"text-align"}
SCHEMES = {"http", "https", "mailto"}


def clean_html(html: str, *, judged: bool = False) -> str:
    """Return `html` without any tag, attribute, class, style or address that isn't allowed.

    `judged` says that the bench writes the page: only such a page may mark verdicts.

    >>> clean_html('<p onclick="x()">a<script>b</script> <a href="javascript:c()">d</a></p>')
    '<p>a <a>d</a></p>'
    """
    return nh3.clean(
        html,
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=partial(_filter_attribute, judged),
        generic_attribute_prefixes={"aria-"},
        filter_style_properties=STYLES,
        url_schemes=SCHEMES,
        link_rel=None,
    )


def _filter_attribute(judged: bool, tag: str, attribute: str, value: str) -> str | None:
    """Return the part of an attribute's value that is allowed, or None."""
    if attribute == "class":
        return allowed_classes.filter_classes(value, judged=judged)
    if attribute in ("id", "name") and value.startswith("__"):
        # Material reads its configuration from the element named __config, and its switches from
        # similar names. Lines of code are numbered with such names too.
        return value if value.startswith("__codelineno-") else None
    if tag == "img" and attribute == "src":
        # A browser ignores white space in an address and reads a backslash as a slash.
        parts = urlsplit("".join(value.split()).replace("\\", "/"))
        return None if parts.scheme or parts.netloc else value  # the site loads from itself alone
    return value
