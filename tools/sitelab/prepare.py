"""Prepares a plain tree of the site's pages and files, which mkdocs reads as its docs folder.

The tree holds links: to every file of docs/, to the notes, results and solutions outside of it, and
to what is vendored. Each page has the path that it has in the repository, so that links that are
written for a code host work as they are. In the site, docs/ is the root and the others are below.
"""

import logging
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files, InclusionLevel
from mkdocs.structure.nav import Section

from notelab.mermaid import BUNDLE
from sitelab import katex
from sitelab.drawing.svg import clean_svg
from sitelab.pages import workbook_pages
from sitelab.rendering import load_words

_log = logging.getLogger("mkdocs.hooks.sitelab")  # below "mkdocs": --strict counts its warnings


def answers_a_lab(uri: str, config: MkDocsConfig) -> bool:
    """Return whether `not_in_nav` of mkdocs.yml lists this page: no menu and no search has it."""
    return bool(config.not_in_nav and config.not_in_nav.match_file(uri))


class PageTree:
    """The tree of a site's files.

    Attributes:
        served: whether the site is served to its writer, with local pages; else it is built.
        local_folders: the folders of local pages: labs that mkdocs.yml doesn't list, and results
            that the bench measured on this machine.
    """

    def __init__(self) -> None:
        self.served = False
        self.local_folders: set[str] = set()
        self._temporary = TemporaryDirectory(prefix="shardbook-")
        self.folder = Path(self._temporary.name, "pages")

    def prepare(self, config: MkDocsConfig) -> None:
        """Write the tree, or what has changed of it, and make it the docs folder.

        Raises:
            PluginError: a page under docs/ has the same path as another, or mermaid is missing.
        """
        if not BUNDLE.is_file():
            raise PluginError(f"{BUNDLE} is missing: restore it from git, or run `make vendor`")
        docs, vendored = Path(config.docs_dir), katex.list_served_files()
        files = {f"assets/katex/{name}": file for name, file in vendored.items()}
        files["assets/javascripts/mermaid.min.js"] = BUNDLE
        root = docs.parent
        files |= {
            file.relative_to(root).as_posix(): file for file in docs.rglob("*") if file.is_file()
        }
        for uri, file in self._choose_pages(config).items():
            if f"docs/{uri}" in files:
                raise PluginError(f"docs/{uri} hides {uri}: two pages would have the same place")
            files[uri] = file
        self._link(files)
        config.docs_dir = str(self.folder)

    def place(self, files: Files) -> None:
        """Give the files of docs/ their places in the site; the i18n plugin then adds languages."""
        for file in files:
            if file.src_uri.startswith("docs/"):
                file.dest_uri = file.dest_uri.removeprefix("docs/")

    def sort_out(self, files: Files, language: str) -> None:
        """Take local pages out of the menu, and untranslated pages out of the site.

        The i18n plugin falls back to the default language for all files or for none, and pictures
        need the fallback. A page that is missing in a language is a warning, but a local page may
        have one language only, and the changelog has no Spanish.
        """
        suffix = f".{language}.md"
        for file in files.documentation_pages():
            local = file.src_uri.startswith(self._prefixes())
            if local:
                file.inclusion = InclusionLevel.NOT_IN_NAV
            if (
                language == "en"
                or file.src_uri.endswith(suffix)
                or file.src_uri == workbook_pages.CHANGELOG
            ):
                continue
            wanted = file.src_uri.removesuffix(".md") + suffix
            level = logging.INFO if local else logging.WARNING
            _log.log(level, "%s has no page in %s: write %s", file.src_uri, language, wanted)
            files.remove(file)

    def make_local_section(self, files: Files, language: str) -> Section | None:
        """Return the menu's section of local pages, or None if the site shows none."""
        pages = {
            file.src_uri: file.page
            for file in files.documentation_pages()
            if file.page and file.src_uri.startswith(self._prefixes())
        }
        if not pages or not self.served:
            return None
        # The section isn't divided by lab, because the menu would show the inner sections folded.
        section = Section(
            load_words(language)["menu"]["local"], [pages[uri] for uri in sorted(pages)]
        )
        for page in section.children:
            page.parent = section
        return section

    def _prefixes(self) -> tuple[str, ...]:
        return tuple(f"{folder}/" for folder in self.local_folders)

    def _choose_pages(self, config: MkDocsConfig) -> dict[str, Path]:
        """Return the site's files that are outside of docs/, and set `local_folders`."""
        root = Path(config.config_file_path).parent
        files = workbook_pages.find_files(root, local=self.served)
        in_menu = [uri for uri in files if not answers_a_lab(uri, config)]
        drafts = workbook_pages.find_labs_outside_nav(in_menu, config.nav)
        self.local_folders = drafts | workbook_pages.find_local_results(files)
        if not self.served:
            for lab in sorted(drafts):
                _log.info("%s is not in mkdocs.yml's nav: left out, and shown by `make serve`", lab)
            below = tuple(f"{lab}/" for lab in drafts)
            files = {uri: path for uri, path in files.items() if not uri.startswith(below)}
        changelog = root / workbook_pages.CHANGELOG
        if changelog.is_file():
            files[changelog.name] = changelog
        cleaned = ((uri, self._clean(uri, path)) for uri, path in files.items())
        return {uri: path for uri, path in cleaned if path}

    def _clean(self, uri: str, path: Path) -> Path | None:
        """Return the path of a file's publishable content, or None, with a warning."""
        if path.suffix.lower() != ".svg":
            return path
        content = path.read_bytes()
        clean = self.folder.with_name(f"{sha256(content).hexdigest()}.svg")
        if not clean.is_file():
            try:
                clean.write_bytes(clean_svg(content))
            except ValueError as fault:
                _log.warning("%s is left out: %s", uri, fault)
                return None
        return clean

    def _link(self, files: dict[str, Path]) -> None:
        for link in self.folder.rglob("*"):
            if link.is_symlink() and link.relative_to(self.folder).as_posix() not in files:
                link.unlink()
        for uri, file in files.items():
            link = self.folder / uri
            if link.is_symlink() and link.readlink() == file:
                continue
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(file)
