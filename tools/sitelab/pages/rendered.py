"""Pages that haven't changed aren't rendered again while `mkdocs serve` runs.

Rendering Markdown is a third of a rebuild, and a saved note is one page of a hundred and fifty.
What a page renders to depends on its text, on its place and on which files there are to link to.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_KEPT = ("content", "toc", "_title_from_render", "present_anchor_ids")


class Rendered(NamedTuple):
    """What mkdocs keeps of a rendered page; links by the place of the page that they lead to."""

    kept: dict[str, Any]
    links: dict[str, dict[str, str]]


class Renderings:
    """Remembers pages by what they depend on, until the process ends."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Rendered] = {}
        self._latest: dict[str, tuple[object, ...]] = {}

    def attach(self, page: Page, markdown: str) -> None:
        """Let `page`, of which `markdown` is about to be rendered, be remembered."""
        render = page.render

        def remembered(config: MkDocsConfig, files: Files) -> None:
            self._render(page, markdown, render, config, files)

        page.render = remembered  # type: ignore[method-assign]

    def _render(
        self,
        page: Page,
        markdown: str,
        render: Callable[[MkDocsConfig, Files], None],
        config: MkDocsConfig,
        files: Files,
    ) -> None:
        place = page.file.src_uri
        # A build takes its files in a row: what there is to link to is asked once a page.
        there = hash(frozenset((file.src_uri, file.url) for file in files))
        key = (place, page.url, markdown, there)
        known = self._known.get(key)
        if known is None:
            render(config, files)
            self._known.pop(self._latest.get(place, ()), None)
            self._latest[place] = key
            self._known[key] = _taken(page)
        else:
            _put(known, page, files)


def _taken(page: Page) -> Rendered:
    links = page.links_to_anchors or {}
    kept = {name: getattr(page, name) for name in _KEPT}
    return Rendered(kept, {file.src_uri: found for file, found in links.items()})


def _put(known: Rendered, page: Page, files: Files) -> None:
    for name, value in known.kept.items():
        setattr(page, name, value)
    page.links_to_anchors = {
        file: found
        for place, found in known.links.items()
        if (file := files.get_file_from_path(place)) is not None
    }
