"""mkdocs hooks: notes and solutions as pages, drawn by the mermaid that checks; no other host.

Listed under `hooks:` in mkdocs.yml. mkdocs runs hooks after its plugins, in the same events.
"""

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.livereload import LiveReloadServer
from mkdocs.plugins import CombinedEvent, event_priority
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from mkdocs_autorefs import AutorefsExtension

from notelab.mermaid import BUNDLE
from notelab.recall.cards import Card
from sitelab import katex
from sitelab.citations import cited, live_citations
from sitelab.citations.cited import Cited
from sitelab.contents import Contents, Source
from sitelab.drawing import formulas, mermaid_scripts
from sitelab.pages import edit_links, gate, plain_title, recall_cards, yours
from sitelab.pages.bench_pages import is_bench_page
from sitelab.pages.rendered import Renderings
from sitelab.pages.repository_links import RepositoryLinks
from sitelab.pages.site_pages import SitePages
from sitelab.pages.workbook_pages import FOLDERS
from sitelab.theme import imprint, local_server, missing_page, search_index, theme_faults
from sitelab.theme.compiled_templates import CompiledTemplates
from sitelab.theme.content_policy import ContentPolicy
from sitelab.theme.search_entries import SearchEntries

_log = logging.getLogger("mkdocs.hooks.sitelab")  # below "mkdocs": --strict counts its warnings
_links = RepositoryLinks()
_citations: dict[Path, dict[str, Cited]] = {}
_contents = Contents()
_renderings = Renderings()
_templates = CompiledTemplates()
_search_entries = SearchEntries()
_held: dict[str, str] = {}
_marks: dict[str, str] = {}
_cards: dict[Path, list[Card]] = {}
_pages = SitePages()


def on_startup(command: str, dirty: bool) -> None:
    """Remember whether the site is built or served: only a served one shows a reader's own."""
    _pages.served = command == "serve"


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
    # Only what mkdocstrings writes refers across pages: in prose [0, 4] [1, 5] are groups of ranks.
    config.markdown_extensions = [
        extension
        for extension in config.markdown_extensions
        if not isinstance(extension, AutorefsExtension)
    ]
    config.markdown_extensions.append(_links)  # type: ignore[arg-type]
    folders = (_root(config) / folder for folder in FOLDERS)
    config.watch += [str(folder) for folder in folders if folder.is_dir()]
    return config


def on_pre_build(config: MkDocsConfig) -> None:
    """Let the search remember pages; resolve what they cite, once for all languages of a build."""
    search: Any = config.plugins["material/search"]
    _search_entries.attach(search.search_index)
    plugin: Any = config.plugins["i18n"]
    if plugin.building:
        return  # another language of the same build
    bench = cited.offline_bench()
    _citations.clear()
    _citations.update(cited.by_page(_root(config), bench))
    _cards.clear()
    _cards.update(recall_cards.by_page(_root(config), list(plugin.all_languages), bench))
    bench.cache.save()  # what a page says is read again only once it has changed


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


@cache
def _policy_of(folders: tuple[str, ...]) -> ContentPolicy:
    return ContentPolicy(folders)


def _policy(config: MkDocsConfig) -> ContentPolicy:
    return _policy_of(tuple(config.theme.dirs))


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
    """Add mermaid, KaTeX's style and fonts, and the workbook's pages, to what the site serves."""
    assets = {f"{formulas.FOLDER}/{name}": file for name, file in katex.served().items()}
    _pages.declare(files, config, assets | {_asset(config): BUNDLE})
    return files


@event_priority(-200)
def _find(files: Files, config: MkDocsConfig) -> Files:
    """Say where the declared pages really lie, once the i18n plugin has run."""
    _pages.find(files, config)
    return files


on_files = CombinedEvent(_declare, _find)


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Put what is the reader's own at the menu's end, while the site is served."""
    own = yours.section(files, _pages.own, str(config.theme["language"]))
    if own and _pages.served:
        nav.items.append(own)
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Tell the link rewriter which page comes next; render it only if it is new."""
    _links.page = page.file.src_uri
    _renderings.attach(page, markdown)
    return markdown


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> Environment:
    """Let the theme's templates be compiled once."""
    env.bytecode_cache = _templates
    return env


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Clean the page of what could run, draw its formulas, make its citations alive."""
    language = str(config.theme["language"])
    plain_title.make_plain(page)
    if gate.answers(page.file.src_uri, config):
        page.meta["search"] = {"exclude": True}
    file, root = Path(page.file.abs_src_path or "").resolve(), _root(config).resolve()
    source = Source(
        html,
        page.url,
        language,
        citations=_citations.get(file, {}),
        cards=_cards.get(file, []),
        judged=is_bench_page(page.file.src_uri),
    )
    content = _contents.of(source, root)
    for fault in content.faults:
        _log.warning("%s", fault.at(file, root))
    live_citations.write_cards(content.cards, language, Path(config.site_dir))
    _marks[page.url] = content.mark
    return imprint.in_english(content.html, page.file.src_uri)


def on_page_context(
    context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Navigation
) -> dict[str, Any]:
    """Say where the page can be edited and which version it is; give the front page its width."""
    root = _root(config)
    base = edit_links.base(root, str(config.extra.get("edit") or ""))
    config.copyright = imprint.of(page.url, _root(config), str(config.theme["language"]))
    if page.is_homepage or page.url == "es/":  # a door: its menu is the tabs
        page.meta["hide"] = ["navigation", "toc"]
    page.edit_url = edit_links.address(base, root, Path(page.file.abs_src_path or ""))
    return context


@event_priority(100)
def _hold(output: str, page: Page, config: MkDocsConfig) -> str:
    """Hand mermaid2 a skeleton of the page."""
    _held[page.url] = output
    return mermaid_scripts.skeleton(output)


@event_priority(-200)
def _finish(skeleton: str, page: Page, config: MkDocsConfig) -> str:
    """Complete the page: mermaid's script, KaTeX's style, and the search of its own language.

    Alternates are left out: the selector names them.
    """
    output = mermaid_scripts.added(_held.pop(page.url), skeleton)
    language = str(config.theme["language"])
    output = _policy(config).state(theme_faults.mended(output, language))
    base, own = (get_relative_url(root, page.url).rstrip("/") for root in (".", f"{language}/"))
    output = formulas.styled(output, base)
    output = live_citations.hide_forged_cards(output, _marks[page.url])
    return output if language == "en" else search_index.rebase(output, base, own)


on_post_page = CombinedEvent(_hold, _finish)


@event_priority(-300)
def on_post_build(config: MkDocsConfig) -> None:
    """Split the search index, once all languages are built."""
    search_index.split(Path(config.site_dir), "es")


def on_serve(
    server: LiveReloadServer, config: MkDocsConfig, builder: Callable[[], None]
) -> LiveReloadServer:
    """Let the local server refuse other hosts' names."""
    local_server.guard(server, config.dev_addr.host)
    return server


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """Write a 404.html that works anywhere; leave out a sitemap that could name no address."""
    if template_name == missing_page.NAME:
        return missing_page.page()
    return "" if template_name == "sitemap.xml" and not config.site_url else output
