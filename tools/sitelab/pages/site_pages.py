"""Adds the workbook's pages to the files of a site, and knows which of them are local pages."""

import logging
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

from sitelab.drawing.clean_svg import clean_svg
from sitelab.pages import answer_pages, untranslated, workbook_pages

_log = logging.getLogger("mkdocs.hooks.sitelab")  # below "mkdocs": --strict counts its warnings


class SitePages:
    """Adds the workbook's pages to the site.

    Attributes:
        served: whether the site is served to its writer, with local pages; else it is built.
        local_folders: the folders of local pages, which mkdocs.yml doesn't list.
    """

    def __init__(self) -> None:
        self.served = False
        self.local_folders: set[str] = set()
        self._files: dict[str, Path] = {}
        self._pictures = TemporaryDirectory(prefix="shardbook-pictures-")

    def declare(self, files: Files, config: MkDocsConfig, assets: dict[str, Path]) -> None:
        """Add assets, by their paths in the site, and the workbook's pages.

        They are declared as files of docs/ before the i18n plugin sorts files by language. The
        plugin makes a new File of each from that folder, so any other path would be lost.

        Raises:
            PluginError: a page under docs/ has the same path as another page.
        """
        for uri, file in assets.items():
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(file)))
        self._files = pages = self._choose(config)
        for uri in pages:
            if files.get_file_from_path(uri) is not None:
                raise PluginError(f"docs/{uri} hides {uri}: two pages would have the same place")
            files.append(File(uri, config.docs_dir, config.site_dir, config.use_directory_urls))
        for page in files:
            if page.src_uri.startswith(tuple(f"{folder}/" for folder in self.local_folders)):
                page.inclusion = InclusionLevel.NOT_IN_NAV

    def locate(self, files: Files, config: MkDocsConfig) -> None:
        """Set the declared pages' true paths, after the i18n plugin has run.

        A page that the plugin took from another language is removed, with a warning unless it is a
        local page, which may have one language only.
        """
        for file in files:
            if file.src_uri in self._files:
                file.abs_src_path = str(self._files[file.src_uri])
        language = str(config.theme["language"])
        if language == "en":
            return
        untranslated_pages = untranslated.find_untranslated(files, language)
        untranslated_pages.pop(workbook_pages.CHANGELOG, None)  # it has no Spanish
        for uri, wanted in untranslated_pages.items():
            file = next(file for file in files if file.src_uri == uri)
            level = logging.INFO if file.inclusion is InclusionLevel.NOT_IN_NAV else logging.WARNING
            _log.log(level, "%s has no page in %s: write %s", uri, language, wanted)
            files.remove(file)

    def _choose(self, config: MkDocsConfig) -> dict[str, Path]:
        """Return the workbook's files that the site has, and set `local_folders`."""
        root = Path(config.config_file_path).parent
        files = workbook_pages.find_files(root, local=self.served)
        in_menu = [uri for uri in files if not answer_pages.answers_a_lab(uri, config)]
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
        clean = Path(self._pictures.name, f"{sha256(content).hexdigest()}.svg")
        if not clean.is_file():
            try:
                clean.write_bytes(clean_svg(content))
            except ValueError as fault:
                _log.warning("%s is left out: %s", uri, fault)
                return None
        return clean
