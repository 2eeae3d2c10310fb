"""Caches what a build makes of each page, so that `mkdocs serve` makes only changed pages again.

A saved note is one page of a hundred and fifty. Rendering Markdown and parsing HTML for Material's
search are a third of a rebuild each.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

T = TypeVar("T")
_RENDERED = ("content", "toc", "_title_from_render", "present_anchor_ids")


class PageCache(Generic[T]):
    """The latest result for each page, by its address, until the process ends."""

    def __init__(self) -> None:
        self._results: dict[str, tuple[object, T]] = {}

    def get_or_make(self, url: str, key: object, make: Callable[[], T]) -> T:
        """Return the page's latest result; make it if its input, the key, has changed."""
        if url not in self._results or self._results[url][0] != key:
            self._results[url] = key, make()
        return self._results[url][1]


_rendered: PageCache[tuple[dict[str, Any], dict[str, dict[str, str]]]] = PageCache()
_entries: PageCache[list[dict[str, Any]]] = PageCache()


def cache_rendering(page: Page, markdown: str) -> None:
    """Make `page`, whose `markdown` is about to be rendered, use the latest rendering.

    It depends on the page's text and on the files to which it can link. Links are kept by the path
    of their target.
    """
    render = page.render

    def render_or_restore(config: MkDocsConfig, files: Files) -> None:
        def make() -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
            render(config, files)
            linked = page.links_to_anchors or {}
            links = {file.src_uri: anchors for file, anchors in linked.items()}
            return {name: getattr(page, name) for name in _RENDERED}, links

        available_files = hash(frozenset((file.src_uri, file.url) for file in files))
        attributes, links = _rendered.get_or_make(page.url, (markdown, available_files), make)
        vars(page).update(attributes)
        targets = {path: files.get_file_from_path(path) for path in links}
        page.links_to_anchors = {file: links[path] for path, file in targets.items() if file}

    page.render = render_or_restore  # type: ignore[method-assign]


def cache_entries(index: Any) -> None:
    """Make `index`, the search plugin's index of this build, use the latest entries of pages."""
    add_entry = index.add_entry_from_context

    def add_or_restore(page: Page) -> None:
        def make() -> list[dict[str, Any]]:
            before = len(index.entries)
            add_entry(page)
            entries: list[dict[str, Any]] = index.entries[before:]
            del index.entries[before:]
            return entries

        key = (page.content, page.title, repr(page.meta))
        index.entries.extend(map(dict, _entries.get_or_make(page.url, key, make)))

    index.add_entry_from_context = add_or_restore
