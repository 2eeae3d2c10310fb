"""mkdocs hooks: add notes and solutions as pages, and change each page on its way into the site.

mkdocs.yml lists this module under `hooks:`. mkdocs runs hooks after its plugins' same events.
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
from sitelab.citations import live_citations, resolved
from sitelab.citations.resolved import ResolvedCitation
from sitelab.contents import Contents, Source
from sitelab.drawing import formulas, mermaid_scripts
from sitelab.pages import answer_pages, edit_links, local_pages, plain_title, recall_cards
from sitelab.pages.bench_pages import is_bench_page
from sitelab.pages.render_cache import RenderCache
from sitelab.pages.repository_links import RepositoryLinks
from sitelab.pages.site_pages import SitePages
from sitelab.pages.workbook_pages import FOLDERS
from sitelab.theme import local_server, missing_page, page_footer, search_index, theme_fixes
from sitelab.theme.compiled_templates import CompiledTemplates
from sitelab.theme.content_policy import ContentPolicy
from sitelab.theme.search_entries import SearchEntries

_log = logging.getLogger("mkdocs.hooks.sitelab")  # below "mkdocs": --strict counts its warnings
_links = RepositoryLinks()
_citations: dict[Path, dict[str, ResolvedCitation]] = {}
_contents = Contents()
_render_cache = RenderCache()
_templates = CompiledTemplates()
_search_entries = SearchEntries()
_full_outputs: dict[str, str] = {}
_marks: dict[str, str] = {}
_cards: dict[Path, list[Card]] = {}
_pages = SitePages()


def on_startup(command: str, dirty: bool) -> None:
    """Remember whether the site is built or served: only a served site shows local pages."""
    _pages.served = command == "serve"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make mermaid2 accept the vendored bundle as the file that its `javascript` option names.

    mermaid2 looks for that file under docs/ and stores the result. The bundle is in the checker's
    folder instead, so this hook sets the result that mermaid2 would store.

    Raises:
        PluginError: mermaid2 is not set up in mkdocs.yml, or the bundle is missing.
    """
    if not BUNDLE.is_file():
        raise PluginError(f"{BUNDLE} is missing: restore it from git, or run `make vendor`")
    path = _mermaid_path(config)
    plugin: Any = config.plugins["mermaid2"]
    plugin._javascript = path
    # Only mkdocstrings writes references across pages: in prose, [0, 4] [1, 5] are groups of ranks.
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
    """Attach the search's cache; resolve all citations once for all languages of a build."""
    search: Any = config.plugins["material/search"]
    _search_entries.attach(search.search_index)
    plugin: Any = config.plugins["i18n"]
    if plugin.building:
        return  # another language of the same build
    session = resolved.open_offline_session()
    _citations.clear()
    _citations.update(resolved.resolve_citations(_root(config), session))
    _cards.clear()
    _cards.update(recall_cards.find_cards(_root(config), list(plugin.all_languages), session))
    session.cache.save()  # a page is parsed again only after it has changed


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


@cache
def _load_policy(folders: tuple[str, ...]) -> ContentPolicy:
    return ContentPolicy(folders)


def _mermaid_path(config: MkDocsConfig) -> str:
    """Return the path in the site from which mermaid2 loads its script."""
    plugin = config.plugins.get("mermaid2")
    path = plugin.config["javascript"] if plugin else None
    if not path or "://" in path:
        raise PluginError(
            "mkdocs.yml must list the plugin mermaid2, its `javascript` a path within the site; "
            f"found {path!r}"
        )
    return str(path)


@event_priority(100)
def _declare(files: Files, config: MkDocsConfig) -> Files:
    """Add mermaid, KaTeX's style and fonts, and the workbook's pages to the site's files."""
    assets = {f"{formulas.FOLDER}/{name}": file for name, file in katex.list_served_files().items()}
    _pages.declare(files, config, assets | {_mermaid_path(config): BUNDLE})
    return files


@event_priority(-200)
def _locate(files: Files, config: MkDocsConfig) -> Files:
    """Set the declared pages' true paths, after the i18n plugin has run."""
    _pages.locate(files, config)
    return files


on_files = CombinedEvent(_declare, _locate)


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Add the section of local pages at the end of the menu, if the site is served."""
    section = local_pages.make_section(files, _pages.local_folders, str(config.theme["language"]))
    if section and _pages.served:
        nav.items.append(section)
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Tell the link rewriter which page comes next; render the page only if it has changed."""
    _links.page = page.file.src_uri
    _render_cache.attach(page, markdown)
    return markdown


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> Environment:
    """Make jinja2 compile the theme's templates only once."""
    env.bytecode_cache = _templates
    return env


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Clean the page's HTML, draw its formulas and link its citations."""
    language = str(config.theme["language"])
    plain_title.make_plain(page)
    if answer_pages.answers_a_lab(page.file.src_uri, config):
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
    content = _contents.get(source, root)
    for fault in content.faults:
        _log.warning("%s", fault.format(file, root))
    live_citations.write_cards(content.cards, language, Path(config.site_dir))
    _marks[page.url] = content.mark
    return page_footer.mark_changelog_english(content.html, page.file.src_uri)


def on_page_context(
    context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Navigation
) -> dict[str, Any]:
    """Set the page's edit link and its footer; hide the front page's side menus."""
    root = _root(config)
    base = edit_links.find_base(root, str(config.extra.get("edit") or ""))
    config.copyright = page_footer.render_footer(
        page.url, _root(config), str(config.theme["language"])
    )
    if page.is_homepage or page.url == "es/":  # the front page's menu is the tabs
        page.meta["hide"] = ["navigation", "toc"]
    page.edit_url = edit_links.make_address(base, root, Path(page.file.abs_src_path or ""))
    return context


@event_priority(100)
def _give_skeleton(output: str, page: Page, config: MkDocsConfig) -> str:
    """Give mermaid2 a skeleton of the page, and keep the whole page for `_complete_page`."""
    _full_outputs[page.url] = output
    return mermaid_scripts.make_skeleton(output)


@event_priority(-200)
def _complete_page(skeleton: str, page: Page, config: MkDocsConfig) -> str:
    """Complete the page: add mermaid's script, KaTeX's style, the policy and the right search."""
    output = mermaid_scripts.add_scripts(_full_outputs.pop(page.url), skeleton)
    language = str(config.theme["language"])
    output = _load_policy(tuple(config.theme.dirs)).add_policy(
        theme_fixes.fix_page(output, language)
    )
    base, language_base = (
        get_relative_url(root, page.url).rstrip("/") for root in (".", f"{language}/")
    )
    output = formulas.add_style_sheet(output, base)
    output = live_citations.hide_forged_cards(output, _marks[page.url])
    return output if language == "en" else search_index.rebase(output, base, language_base)


on_post_page = CombinedEvent(_give_skeleton, _complete_page)


@event_priority(-300)
def on_post_build(config: MkDocsConfig) -> None:
    """Split the search index, once all languages are built."""
    search_index.split_index(Path(config.site_dir), "es")


def on_serve(
    server: LiveReloadServer, config: MkDocsConfig, builder: Callable[[], None]
) -> LiveReloadServer:
    """Make the local server refuse the names of other hosts."""
    local_server.guard_server(server, config.dev_addr.host)
    return server


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """Write a 404.html that works in any folder; omit the sitemap if the site has no address."""
    if template_name == missing_page.NAME:
        return missing_page.render_page()
    return "" if template_name == "sitemap.xml" and not config.site_url else output
