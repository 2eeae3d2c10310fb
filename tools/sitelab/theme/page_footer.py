"""Renders a page's footer: the version, and a link to the changelog."""

from pathlib import Path, PurePosixPath

from mkdocs.utils import get_relative_url

from notelab import __version__
from sitelab.pages.workbook_pages import CHANGELOG

_WORDS = {"en": "What has changed", "es": "Qué ha cambiado"}


def render_footer(url: str, root: Path, language: str) -> str:
    """Return the footer of the page at `url`, as HTML."""
    version = f"Shardbook {__version__}"
    if not (root / CHANGELOG).is_file():
        return version
    path = PurePosixPath("" if language == "en" else language, CHANGELOG).with_suffix("")
    address = get_relative_url(f"{path}/", url)
    return f'{version} · <a href="{address}">{_WORDS[language]}</a>'


def mark_changelog_english(html: str, uri: str) -> str:
    """Return a page's HTML; the changelog's is marked as English, also in the Spanish site."""
    return f'<div lang="en">{html}</div>' if uri == CHANGELOG else html
