"""The workbook's pages among the files of a site, and which of them are the reader's own."""

import logging
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

from sitelab.drawing.clean_svg import clean_svg
from sitelab.pages import gate, untranslated, workbook_pages

_log = logging.getLogger("mkdocs.hooks.sitelab")  # below "mkdocs": --strict counts its warnings


class SitePages:
    """Brings the workbook's pages in.

    Attributes:
        served: whether the site is only shown to who writes it, with what git ignores.
        own: the folders of the reader's own pages, of which mkdocs.yml knows nothing.
    """

    def __init__(self) -> None:
        self.served = False
        self.own: set[str] = set()
        self._files: dict[str, Path] = {}
        self._pictures = TemporaryDirectory(prefix="shardbook-pictures-")

    def declare(self, files: Files, config: MkDocsConfig, assets: dict[str, Path]) -> None:
        """Add assets, by their place in the site, and the workbook's pages.

        They are declared as if they lay under docs/, before the i18n plugin sorts files by
        language, for it makes a new File of each from that folder and would lose any other source.

        Raises:
            PluginError: a page under docs/ has the place of another.
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
            if page.src_uri.startswith(tuple(f"{folder}/" for folder in self.own)):
                page.inclusion = InclusionLevel.NOT_IN_NAV

    def find(self, files: Files, config: MkDocsConfig) -> None:
        """Say where the declared pages really lie, once the i18n plugin has run.

        A page that the plugin took from another language is left out, with a warning; one of the
        reader's own, without: it may have one language.
        """
        for file in files:
            if file.src_uri in self._files:
                file.abs_src_path = str(self._files[file.src_uri])
        language = str(config.theme["language"])
        if language == "en":
            return
        missing = untranslated.missing(files, language)
        missing.pop(workbook_pages.CHANGELOG, None)  # stands in for itself, as what it is: English
        for uri, wanted in missing.items():
            file = next(file for file in files if file.src_uri == uri)
            level = logging.INFO if file.inclusion is InclusionLevel.NOT_IN_NAV else logging.WARNING
            _log.log(level, "%s has no page in %s: write %s", uri, language, wanted)
            files.remove(file)

    def _choose(self, config: MkDocsConfig) -> dict[str, Path]:
        """Return the files of the workbook that the site has, and note the reader's own folders."""
        root = Path(config.config_file_path).parent
        files = workbook_pages.found(root, local=self.served)
        known = [uri for uri in files if not gate.answers(uri, config)]
        drafts = workbook_pages.labs_outside_nav(known, config.nav)
        self.own = drafts | workbook_pages.local_results(files)
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
        """Return where a file's publishable content lies; None, with a warning, if it has none."""
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
