"""Applies a part of the site to some HTML: parses it, changes it and writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sitelab.pages.tree import parse


def apply_change(html: str, change: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    """Return the HTML after `change`, whose first argument is the page's tree."""
    page = parse(html)
    change(page, *arguments, **settings)
    return page.html()
