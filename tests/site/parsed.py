"""What a part of the site makes of some HTML: parsed, changed, written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sitelab.pages.tree import parse


def changed(html: str, change: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    """Return the HTML after `change`, whose first argument is its tree."""
    page = parse(html)
    change(page, *arguments, **settings)
    return page.html()
