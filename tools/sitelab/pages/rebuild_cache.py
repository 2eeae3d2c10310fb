"""Caches what a build makes of each page, so that `mkdocs serve` makes only changed pages again.

A saved note is one page of a hundred and fifty. Rendering Markdown, parsing HTML for Material's
search, and filling the theme's template take most of a rebuild.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from jinja2 import Environment, Template
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


class _Rendering(NamedTuple):
    attributes: dict[str, Any]  # of the page
    links: dict[str, dict[str, str]]  # anchors by the path of their file
    registered: list[dict[str, Any]]  # anchors that other pages may refer to by name


class RebuildCache:
    """The latest rendering, search entries and output of each page."""

    def __init__(self) -> None:
        self._rendered: PageCache[_Rendering] = PageCache()
        self._entries: PageCache[list[dict[str, Any]]] = PageCache()
        self._outputs: PageCache[str] = PageCache()

    def cache_outputs(self, env: Environment) -> None:
        """Make the templates of `env` use the latest output of pages.

        It depends on the page, on the menu and on the page's neighbours, which no menu may have.
        """
        outputs, menus = self._outputs, dict[int, str]()

        class CachedTemplate(Template):
            def render(self, context: dict[str, Any]) -> str:
                page, fill = context.get("page"), super().render
                if page is None:  # of the sitemap and the page of errors
                    return fill(context)
                values = (page.content, page.title, repr(page.meta), page.edit_url)
                nav = context["nav"]
                menu = menus.get(id(nav)) or menus.setdefault(id(nav), str(nav))
                key = (menu, repr(page.previous_page), repr(page.next_page), *values)
                return outputs.get_or_make(page.url, key, lambda: fill(context))

        env.template_class = CachedTemplate

    def cache_rendering(self, page: Page, markdown: str, autorefs: Any) -> None:
        """Make `page`, whose `markdown` is about to be rendered, use the latest rendering.

        It depends on the page's text and on the files to which it can link. Links are kept by the
        path of their target. `autorefs`, that plugin, is new in each build: it is told again.
        """
        render, register = page.render, autorefs.register_anchor

        def render_or_restore(config: MkDocsConfig, files: Files) -> None:
            def make() -> _Rendering:
                registered: list[dict[str, Any]] = []
                autorefs.register_anchor = lambda page, identifier, anchor=None, **more: (
                    registered.append(more | {"identifier": identifier, "anchor": anchor})
                )
                try:
                    render(config, files)
                finally:
                    autorefs.register_anchor = register
                linked = page.links_to_anchors or {}
                links = {file.src_uri: anchors for file, anchors in linked.items()}
                return _Rendering(
                    {name: getattr(page, name) for name in _RENDERED}, links, registered
                )

            available_files = hash(frozenset((file.src_uri, file.url) for file in files))
            kept = self._rendered.get_or_make(page.url, (markdown, available_files), make)
            for anchor in kept.registered:
                register(page, **anchor)
            vars(page).update(kept.attributes)
            targets = {path: files.get_file_from_path(path) for path in kept.links}
            page.links_to_anchors = {
                file: kept.links[path] for path, file in targets.items() if file
            }

        page.render = render_or_restore  # type: ignore[method-assign]

    def cache_entries(self, index: Any) -> None:
        """Make `index`, the search plugin's index of this build, use the latest entries."""
        add_entry = index.add_entry_from_context

        def add_or_restore(page: Page) -> None:
            def make() -> list[dict[str, Any]]:
                before = len(index.entries)
                add_entry(page)
                entries: list[dict[str, Any]] = index.entries[before:]
                del index.entries[before:]
                return entries

            key = (page.content, page.title, repr(page.meta))
            index.entries.extend(map(dict, self._entries.get_or_make(page.url, key, make)))

        index.add_entry_from_context = add_or_restore
