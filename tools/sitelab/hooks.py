"""mkdocs hooks: add notes and solutions as pages, and change each page on its way into the site.

mkdocs.yml lists this module under `hooks:`. mkdocs runs hooks after its plugins' same events. It is
no installed plugin, which a clone would know only after another installation.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from jinja2 import Environment, FileSystemBytecodeCache
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort
from mkdocs.livereload import LiveReloadServer
from mkdocs.plugins import CombinedEvent, event_priority
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs_autorefs import AutorefsExtension

from notelab import __version__
from notelab.recall.cards import Card
from sitelab import live_citations, plain_tree, resolved_citations
from sitelab.contents import Contents, Source
from sitelab.drawing import diagrams
from sitelab.pages import plain_title, recall_cards, wayfinding
from sitelab.pages.allowed_html import is_bench_page
from sitelab.pages.rebuild_cache import PageCache, RebuildCache
from sitelab.pages.wayfinding import Wayfinding
from sitelab.pages.workbook_pages import CHANGELOG, FOLDERS
from sitelab.prepare import PageTree, answers_a_lab
from sitelab.resolved_citations import Resolved, ResolvedCitation
from sitelab.theme import local_server, search_index
from sitelab.theme.content_policy import add_policy

_TEMPLATES = Path(__file__).with_name("theme") / "templates"
_log = logging.getLogger("mkdocs.hooks.sitelab")  # below "mkdocs": --strict counts its warnings


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def _language(config: MkDocsConfig) -> str:
    return str(config.theme["language"])


class Options(msgspec.Struct, forbid_unknown_fields=True):
    """What mkdocs.yml sets in `extra.sitelab`.

    Attributes:
        edit: the address to which an edit link appends a file's path; None asks the clone's origin.
        plain: the folder into which the plain tree is written, if any.
        serve: the language that `mkdocs serve` builds, or None for both.
    """

    edit: str | None = None
    plain: str | None = None
    serve: Literal["en", "es"] | None = "en"


def read_options(config: MkDocsConfig) -> Options:
    """Return the options of the site.

    Raises:
        Abort: an option has an unknown name or a value of another type.
    """
    try:
        return msgspec.convert(config.extra.get("sitelab", {}), Options)
    except msgspec.ValidationError as error:
        names = ", ".join(Options.__struct_fields__)
        raise Abort(f"mkdocs.yml, extra.sitelab: {error}; its options are {names}") from None


class Site:
    """The site: its events in mkdocs's names, and what stays from build to build."""

    def __init__(self) -> None:
        """Begin without pages."""
        self._options = Options()
        self._tree = PageTree()
        self._cache = RebuildCache()
        self._contents = Contents()
        self._todays_cards = recall_cards.TodaysCards()
        self._wayfinding = Wayfinding()
        self._citations: dict[Path, dict[str, ResolvedCitation]] = {}
        self._resolved: Resolved = {}
        self._citation_cards: dict[str, str] = {}
        self._cards: dict[Path, list[Card]] = {}
        self._full_outputs: dict[str, str] = {}
        self._complete_outputs: PageCache[str] = PageCache()
        self._waiting: local_server.WaitingServer | None = None

    def on_startup(self, command: str, dirty: bool) -> None:
        """Remember whether the site is built or served: only a served site shows local pages."""
        self._tree.served = command == "serve"
        for plugin in ("mkdocs_static_i18n", "mermaid2"):  # a line for each page, in each language
            logging.getLogger(f"mkdocs.plugins.{plugin}").setLevel(logging.WARNING)

    @event_priority(200)
    def _answer_at_once(self, config: MkDocsConfig) -> MkDocsConfig:
        """Read the options; serve the language that they name, and a page until it is built."""
        self._options = read_options(config)
        if not self._tree.served:
            return config
        plugin: Any = config.plugins["i18n"]
        plugin.config.build_only_locale = only = self._options.serve
        names: Any = config.plugins["mkdocstrings"]
        names.config.enable_inventory = False  # it would lack the pages that aren't rendered again
        if not self._tree.folder.exists():  # the first build
            host, port = config.dev_addr
            try:
                self._waiting = local_server.WaitingServer(host, port)
            except OSError as error:
                raise Abort(
                    f"nothing can be served at {host}:{port} ({error.strerror}): choose another "
                    "address with --dev-addr, or end what serves there"
                ) from None
            built = f"{only!r}; SHARDBOOK_ONLY= builds both languages" if only else "both languages"
            _log.info("http://%s:%d/ answers now; being built: %s", host, port, built)
        return config

    @event_priority(100)
    def _prepare(self, config: MkDocsConfig) -> MkDocsConfig:
        """Prepare the tree of pages, before the plugins look into the docs folder."""
        if str(self._tree.folder) != config.docs_dir:  # else another language of the same build
            folders = (_root(config) / folder for folder in FOLDERS)
            config.watch += [config.docs_dir, *(str(path) for path in folders if path.is_dir())]
            config.theme.dirs.insert(0, str(_TEMPLATES))
            self._tree.prepare(config)
        return config

    def _choose_extensions(self, config: MkDocsConfig) -> MkDocsConfig:
        """Let only mkdocstrings refer across pages: in prose, [0, 4] [1, 5] are ranks."""
        extensions: list[Any] = config.markdown_extensions
        others = (each for each in extensions if not isinstance(each, AutorefsExtension))
        config.markdown_extensions = [*others]
        return config

    on_config = CombinedEvent(_answer_at_once, _prepare, _choose_extensions)

    def on_pre_build(self, config: MkDocsConfig) -> None:
        """Attach the search's cache; resolve all citations once for all languages of a build."""
        search: Any = config.plugins["material/search"]
        self._cache.cache_entries(search.search_index)
        plugin: Any = config.plugins["i18n"]
        if plugin.building:
            return  # another language of the same build
        wayfinding.read_origin.cache_clear()
        self._contents.begin_build(_root(config))
        session = resolved_citations.open_offline_session()
        self._citations = resolved_citations.resolve_citations(
            _root(config), session, self._resolved
        )
        languages = list(plugin.all_languages)
        self._cards = recall_cards.find_cards(_root(config), languages, session)
        session.cache.save()  # a page is parsed again only after it has changed

    @event_priority(100)
    def _place(self, files: Files, config: MkDocsConfig) -> Files:
        """Give each file its place in the site, before the i18n plugin sorts files by language."""
        self._tree.place(files)
        return files

    @event_priority(-200)
    def _sort_out(self, files: Files, config: MkDocsConfig) -> Files:
        """Take local and untranslated pages out, after the i18n plugin has run."""
        self._tree.sort_out(files, _language(config))
        return files

    on_files = CombinedEvent(_place, _sort_out)

    def on_nav(self, nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
        """Add the section of local pages at the end of the menu, if the site is served."""
        if section := self._tree.make_local_section(files, _language(config)):
            nav.items.append(section)
        return nav

    def on_page_markdown(
        self, markdown: str, page: Page, config: MkDocsConfig, files: Files
    ) -> str:
        """Name the repository in commands; render the page only if it has changed."""
        markdown = wayfinding.name_repository(markdown, _root(config), config.repo_url)
        self._cache.cache_rendering(page, markdown, config.plugins["autorefs"])
        return markdown

    def on_env(self, env: Environment, config: MkDocsConfig, files: Files) -> Environment:
        """Guide readers; compile templates once, and fill them for changed pages."""
        self._wayfinding.guide(_language(config))
        env.bytecode_cache = FileSystemBytecodeCache(str(self._tree.folder.parent))
        self._cache.cache_outputs(env)
        return env

    def on_page_content(self, html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
        """Clean the page's HTML, draw its formulas and link its citations."""
        language, uri, root = _language(config), page.file.src_uri, _root(config).resolve()
        plain_title.make_plain(page)
        hidden = answers_a_lab(uri, config)
        page.meta["search"] = {"exclude": True} if hidden else search_index.weigh_page(uri)
        file = Path(page.file.abs_src_path or "").resolve()
        citations, cards = self._citations.get(file, {}), self._cards.get(file, [])
        source = Source(html, page.url, language, citations, cards, judged=is_bench_page(uri))
        content = self._contents.get(source, root)
        for fault in content.faults:
            _log.warning("%s", fault.format(file, root))
        live_citations.write_cards(
            content.cards, language, Path(config.site_dir), self._citation_cards
        )
        page.meta["mark"] = content.mark
        self._wayfinding.add(content.html, page)
        if uri == CHANGELOG:  # in English, also in the Spanish site
            return f'<div lang="en">{content.html}</div>'
        html = content.html
        if hidden and citations and uri.startswith("experiments/") and not is_bench_page(uri):
            line = live_citations.describe_sources(citations.values(), language)
            html = html.replace("</h1>", f"</h1>{line}", 1)
        return self._todays_cards.add(html, page, language)

    def on_page_context(
        self, context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Navigation
    ) -> dict[str, Any]:
        """Set the edit link and what the templates need; hide the front page's side menus."""
        root, language = _root(config), _language(config)
        if page.is_homepage or page.url == "es/":  # the front page's menu is the tabs
            page.meta["hide"] = ["navigation", "toc"]
        if plain := self._options.plain:  # its references are resolved by now
            plain_tree.write_page(Path(plain), language, page, page.content or "")
            if page.is_homepage or page.url == "es/":
                plain_tree.write_settings(Path(plain), language, config, nav)
        base = wayfinding.find_base(root, self._options.edit or "")
        page.edit_url = base and base + quote(page.file.src_uri)
        return context | {
            "home": "" if language == "en" else f"{language}/",
            "version": __version__,
            "changelog": (root / CHANGELOG).is_file(),
        }

    @event_priority(100)
    def _give_skeleton(self, output: str, page: Page, config: MkDocsConfig) -> str:
        """Give mermaid2 a skeleton of the page, and keep the whole page for `_complete_page`."""
        self._full_outputs[page.url] = output
        return diagrams.make_skeleton(output)

    @event_priority(-200)
    def _complete_page(self, skeleton: str, page: Page, config: MkDocsConfig) -> str:
        """Complete the page: add mermaid's script and the policy."""
        output = self._full_outputs.pop(page.url)

        def complete() -> str:
            return add_policy(diagrams.add_scripts(output, skeleton), tuple(config.theme.dirs))

        return self._complete_outputs.get_or_make(page.url, (output, skeleton), complete)

    on_post_page = CombinedEvent(_give_skeleton, _complete_page)

    @event_priority(-300)
    def on_post_build(self, config: MkDocsConfig) -> None:
        """Fill the pages of cards and split the search index, once all languages are built."""
        self._todays_cards.fill()
        search_index.split_index(Path(config.site_dir), "es", self._wayfinding)
        search_index.extend_worker(Path(config.site_dir))
        if plain := self._options.plain:
            for language in config.plugins["i18n"].all_languages:  # type: ignore[attr-defined]
                plain_tree.write_files(Path(plain), language, Path(config.site_dir))

    def on_serve(
        self, server: LiveReloadServer, config: MkDocsConfig, builder: Callable[[], None]
    ) -> LiveReloadServer:
        """Watch the files and not the links to them; refuse the names of other hosts."""
        if self._waiting:
            self._waiting.close()
        server.unwatch(config.docs_dir)
        local_server.guard_server(server, config.dev_addr.host)
        return server

    def on_post_template(self, output: str, template_name: str, config: MkDocsConfig) -> str:
        """Omit the sitemap if the site has no address."""
        return "" if template_name == "sitemap.xml" and not config.site_url else output


# mkdocs looks for the events among this module's names, and keeps the module from build to build.
_site = Site()
globals().update({name: getattr(_site, name) for name in dir(_site) if name.startswith("on_")})
