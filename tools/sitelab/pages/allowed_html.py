"""Cleans a page's HTML: keeps text, and removes anything that runs, loads or covers the page.

Markdown lets a writer use any HTML, and any attribute with `{: … }`. A note may come from a
stranger, and readers trust the site. So each page's HTML is parsed as a browser parses it, and only
the parts that allowed.toml lists are kept. The site adds its own parts (citations, formulas) later.
"""

import re
import tomllib
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nh3
from pygments.token import STANDARD_TYPES

_LISTS = Path(__file__).with_name("allowed.toml")
ALLOWED: dict[str, Any] = tomllib.loads(_LISTS.read_text("utf-8"))
_ATTRIBUTES = {tag: set(names) for tag, names in ALLOWED["attributes"].items()}
_JUDGED = set(ALLOWED["classes"].pop("judged"))
_NAMES = {*chain(*ALLOWED["classes"].values()), *STANDARD_TYPES.values()} - {""}
# A fence's language, its tokens, and the API's parts as mkdocstrings names them.
_FORMS = re.compile(r"language-[\w+-]+|(?:l-Scalar|p-Indicator)[\w-]*|doc(?:-[a-z-]+)?")
_LAB = "experiments/35-allreduce-costs"
_BENCH_PAGE = re.compile(rf"{_LAB}/(?:results/local/)?(?:CLAIMS|RESULTS)(?:\.es)?\.md")


def clean_html(html: str, *, judged: bool = False) -> str:
    """Return `html` without any tag, attribute, class, style or address that isn't allowed.

    `judged` says that the bench writes the page: only such a page may mark verdicts.

    >>> clean_html('<p onclick="x()">a<script>b</script> <a href="javascript:c()">d</a></p>')
    '<p>a <a>d</a></p>'
    """
    return nh3.clean(
        html,
        tags=set(ALLOWED["tags"]),
        attributes=_ATTRIBUTES,
        attribute_filter=partial(_filter_attribute, judged),
        generic_attribute_prefixes={"aria-"},
        filter_style_properties=set(ALLOWED["styles"]),
        url_schemes=set(ALLOWED["schemes"]),
        link_rel=None,
    )


def _filter_attribute(judged: bool, tag: str, attribute: str, value: str) -> str | None:
    """Return the part of an attribute's value that is allowed, or None."""
    if attribute == "class":
        return filter_classes(value, judged=judged)
    if attribute in ("id", "name") and value.startswith("__"):
        # Material reads its configuration from the element named __config, and its switches from
        # similar names. Lines of code are numbered with such names too.
        return value if value.startswith("__codelineno-") else None
    if tag == "img" and attribute == "src":
        # A browser ignores white space in an address and reads a backslash as a slash.
        parts = urlsplit("".join(value.split()).replace("\\", "/"))
        return None if parts.scheme or parts.netloc else value  # the site loads from itself alone
    return value


def is_bench_page(uri: str) -> bool:
    """Return whether the bench writes the page with this path in the site.

    >>> is_bench_page("experiments/35-allreduce-costs/CLAIMS.es.md")
    True
    >>> is_bench_page("experiments/99-a-draft/CLAIMS.md")
    False
    """
    return _BENCH_PAGE.fullmatch(uri) is not None


def filter_classes(value: str, *, judged: bool = False) -> str | None:
    """Return the names of a class attribute that a page may use, or None if there are none.

    Args:
        value: the attribute's value.
        judged: whether the bench writes the page.

    >>> filter_classes("question md-overlay"), filter_classes("verdict holds")
    ('question', None)
    >>> filter_classes("verdict holds md-overlay", judged=True)
    'verdict holds'
    """
    allowed = _NAMES | _JUDGED if judged else _NAMES
    names = [name for name in value.split() if name in allowed or _FORMS.fullmatch(name)]
    return " ".join(names) or None
