"""Caches the search entries of pages, so that `mkdocs serve` parses only pages that have changed.

Material's search parses every page's HTML at every build. That is a third of a rebuild, in which
one page of a hundred and fifty has changed.
"""

from typing import Any

from mkdocs.structure.pages import Page


class SearchEntries:
    """Caches the search entries of each page by their input, until the process ends."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[tuple[object, ...], list[dict[str, Any]]]] = {}

    def attach(self, index: Any) -> None:
        """Make `index`, the search plugin's index of this build, use the cached entries."""
        add_entry = index.add_entry_from_context

        def add_entry_from_context(page: Page) -> None:
            key = (page.content, page.title, repr(page.meta))
            cached_key, entries = self._cache.get(page.url, (None, []))
            if cached_key == key:
                index.entries.extend(map(dict, entries))
                return
            before = len(index.entries)
            add_entry(page)
            self._cache[page.url] = key, list(map(dict, index.entries[before:]))

        index.add_entry_from_context = add_entry_from_context
