"""mkdocs hooks: notes and solutions as pages, drawn by the mermaid that checks; no other host.

Listed under `hooks:` in mkdocs.yml. mkdocs runs hooks after its plugins, in the same events.
"""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import CombinedEvent, event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from notelab.mermaid import BUNDLE
from sitelab import cited, live_citations, search_index, workbook_pages
from sitelab.cited import Cited
from sitelab.repository_links import RepositoryLinks

_links = RepositoryLinks()
_citations: dict[Path, dict[str, Cited]] = {}
_ALTERNATE = re.compile(r"""\s*<link\b[^>]*\brel=["']?alternate\b[^>]*>""")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let mermaid2 take the vendored bundle for the file that its `javascript` option names.

    mermaid2 looks for that file under docs/ and keeps what it found; the bundle lies beside the
    checker that runs it, so what mermaid2 would find is given to it here.

    Raises:
        PluginError: mermaid2 is not set up in mkdocs.yml, or the bundle is missing.
    """
    if not BUNDLE.is_file():
        raise PluginError(f"{BUNDLE} is missing: restore it from git, or run `make vendor`")
    place = _asset(config)
    plugin: Any = config.plugins["mermaid2"]
    plugin._javascript = place
    config.markdown_extensions.append(_links)  # type: ignore[arg-type]
    config.watch += [str(_root(config) / folder) for folder in workbook_pages.FOLDERS]
    return config


def on_pre_build(config: MkDocsConfig) -> None:
    """Resolve what the workbook's pages cite; a saved change begins a new build."""
    _citations.clear()
    _citations.update(cited.by_page(_root(config)))


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def _asset(config: MkDocsConfig) -> str:
    plugin = config.plugins.get("mermaid2")
    place = plugin.config["javascript"] if plugin else None
    if not place or "://" in place:
        raise PluginError(
            "mkdocs.yml must list the plugin mermaid2, its `javascript` a path within the site; "
            f"found {place!r}"
        )
    return str(place)


@event_priority(100)
def _declare(files: Files, config: MkDocsConfig) -> Files:
    """Add the bundle, and the workbook's pages, to what the site serves.

    The pages are declared as if they lay under docs/, before the i18n plugin sorts files by
    language, for it makes a new File of each from that folder and would lose any other source.
    """
    place = _asset(config)
    if files.get_file_from_path(place) is None:
        files.append(File.generated(config, place, abs_src_path=str(BUNDLE)))
    for uri in workbook_pages.found(_root(config)):
        if files.get_file_from_path(uri) is not None:
            raise PluginError(f"docs/{uri} hides {uri}: two pages would have the same place")
        files.append(File(uri, config.docs_dir, config.site_dir, config.use_directory_urls))
    return files


@event_priority(-200)
def _find(files: Files, config: MkDocsConfig) -> Files:
    """Say where the declared pages really lie, once the i18n plugin has run."""
    pages = workbook_pages.found(_root(config))
    for file in files:
        if file.src_uri in pages:
            file.abs_src_path = str(pages[file.src_uri])
    return files


on_files = CombinedEvent(_declare, _find)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Tell the link rewriter which page comes next."""
    _links.page = page.file.src_uri
    return markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make the page's citations permalinks with a card each."""
    citations = _citations.get(Path(page.file.abs_src_path or "").resolve())
    if not citations:
        return html
    return live_citations.linked(
        html,
        citations,
        language=str(config.theme["language"]),
        url=page.url,
        site=Path(config.site_dir),
    )


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Leave `<link rel=alternate>` out of a page; sitemap.xml says it, and so does the selector.

    For each of them Material asks for a sitemap.xml below that page, which isn't there. A page of
    another language than the default searches in that language's index.
    """
    output = _ALTERNATE.sub("", output)
    language = str(config.theme["language"])
    if language == "en":
        return output
    base, own = (get_relative_url(root, page.url) for root in (".", f"{language}/"))
    return search_index.rebase(output, base.rstrip("/"), own.rstrip("/"))


@event_priority(-300)
def on_post_build(config: MkDocsConfig) -> None:
    """Split the search index, once all languages are built."""
    search_index.split(Path(config.site_dir), "es")


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """Do the same for 404.html."""
    return _ALTERNATE.sub("", output) if template_name.endswith(".html") else output


def on_template_context(
    context: dict[str, Any], template_name: str, config: MkDocsConfig
) -> dict[str, Any]:
    """Let the language selector of 404.html lead home, not to the page that was built last."""
    plugin: Any = config.plugins["i18n"]
    extra: Any = config.extra
    extra.alternate = deepcopy(plugin.extra_alternate)
    return context
