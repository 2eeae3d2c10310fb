"""Caches rendered pages, so that `mkdocs serve` renders only pages that have changed.

Rendering Markdown is a third of a rebuild, and a saved note is one page of a hundred and fifty.
The result depends on the page's text, on its path and on the files to which it can link.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_RESULT_ATTRIBUTES = ("content", "toc", "_title_from_render", "present_anchor_ids")


class RenderedPage(NamedTuple):
    """The result of rendering a page; links are stored by the path of their target page."""

    attributes: dict[str, Any]
    links: dict[str, dict[str, str]]


class RenderCache:
    """Caches rendered pages by their input, until the process ends."""

    def __init__(self) -> None:
        self._cache: dict[tuple[object, ...], RenderedPage] = {}
        self._latest: dict[str, tuple[object, ...]] = {}

    def attach(self, page: Page, markdown: str) -> None:
        """Make `page`, whose `markdown` is about to be rendered, use this cache."""
        render = page.render

        def render_or_restore(config: MkDocsConfig, files: Files) -> None:
            self._render(page, markdown, render, config, files)

        page.render = render_or_restore  # type: ignore[method-assign]

    def _render(
        self,
        page: Page,
        markdown: str,
        render: Callable[[MkDocsConfig, Files], None],
        config: MkDocsConfig,
        files: Files,
    ) -> None:
        path = page.file.src_uri
        # mkdocs renders page after page, so this is computed once for each page.
        available_files = hash(frozenset((file.src_uri, file.url) for file in files))
        key = (path, page.url, markdown, available_files)
        cached = self._cache.get(key)
        if cached is None:
            render(config, files)
            self._cache.pop(self._latest.get(path, ()), None)
            self._latest[path] = key
            self._cache[key] = _copy_result(page)
        else:
            _restore_result(cached, page, files)


def _copy_result(page: Page) -> RenderedPage:
    links = page.links_to_anchors or {}
    attributes = {name: getattr(page, name) for name in _RESULT_ATTRIBUTES}
    return RenderedPage(attributes, {file.src_uri: anchors for file, anchors in links.items()})


def _restore_result(rendered: RenderedPage, page: Page, files: Files) -> None:
    for name, value in rendered.attributes.items():
        setattr(page, name, value)
    page.links_to_anchors = {
        file: anchors
        for path, anchors in rendered.links.items()
        if (file := files.get_file_from_path(path)) is not None
    }
