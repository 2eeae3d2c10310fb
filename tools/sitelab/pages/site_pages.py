"""The workbook's pages among the files of a site, and which of them are the reader's own."""

import logging
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

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
        pages = self._found(config)
        for uri in pages:
            if files.get_file_from_path(uri) is not None:
                raise PluginError(f"docs/{uri} hides {uri}: two pages would have the same place")
            files.append(File(uri, config.docs_dir, config.site_dir, config.use_directory_urls))
        known = [uri for uri in pages if not gate.answers(uri, config)]
        labs = workbook_pages.labs_outside_nav(known, config.nav)
        for lab in sorted(labs) if not self.served else ():
            _log.info("%s is not in mkdocs.yml's nav: built, and in no menu but a served one", lab)
        self.own = labs | workbook_pages.local_results(pages)
        for page in files:
            if page.src_uri.startswith(tuple(f"{folder}/" for folder in self.own)):
                page.inclusion = InclusionLevel.NOT_IN_NAV

    def find(self, files: Files, config: MkDocsConfig) -> None:
        """Say where the declared pages really lie, once the i18n plugin has run.

        A page that the plugin took from another language is left out, with a warning; one of the
        reader's own, without: it may have one language.
        """
        pages = self._found(config)
        for file in files:
            if file.src_uri in pages:
                file.abs_src_path = str(pages[file.src_uri])
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

    def _found(self, config: MkDocsConfig) -> dict[str, Path]:
        root = Path(config.config_file_path).parent
        changelog = root / workbook_pages.CHANGELOG
        told = {changelog.name: changelog} if changelog.is_file() else {}
        return workbook_pages.found(root, local=self.served) | told
