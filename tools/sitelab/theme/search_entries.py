"""What the search finds in a page is read out of it once while `mkdocs serve` runs.

Material's search takes every page's HTML apart at every build: a third of a rebuild, in which one
page of a hundred and fifty has changed.
"""

from typing import Any

from mkdocs.structure.pages import Page


class SearchEntries:
    """Remembers the entries of each page by what they are made of, until the process ends."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[object, ...], list[dict[str, Any]]]] = {}

    def attach(self, index: Any) -> None:
        """Let `index`, the search plugin's own of this build, add what is remembered."""
        read = index.add_entry_from_context

        def add_entry_from_context(page: Page) -> None:
            made_of = (page.content, page.title, repr(page.meta))
            known, entries = self._known.get(page.url, (None, []))
            if known == made_of:
                index.entries.extend(map(dict, entries))
                return
            before = len(index.entries)
            read(page)
            self._known[page.url] = made_of, list(map(dict, index.entries[before:]))

        index.add_entry_from_context = add_entry_from_context
