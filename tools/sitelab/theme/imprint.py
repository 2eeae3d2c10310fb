"""A page's foot: which version this is, and what has changed."""

from pathlib import Path, PurePosixPath

from mkdocs.utils import get_relative_url

from notelab import __version__
from sitelab.pages.workbook_pages import CHANGELOG

_WORDS = {"en": "What has changed", "es": "Qué ha cambiado"}


def of(url: str, root: Path, language: str) -> str:
    """Return the foot of the page at `url`, as HTML."""
    version = f"Shardbook {__version__}"
    if not (root / CHANGELOG).is_file():
        return version
    place = PurePosixPath("" if language == "en" else language, CHANGELOG).with_suffix("")
    address = get_relative_url(f"{place}/", url)
    return f'{version} · <a href="{address}">{_WORDS[language]}</a>'


def in_english(html: str, uri: str) -> str:
    """Return a page's HTML, marked as English where it is the changelog, in either site."""
    return f'<div lang="en">{html}</div>' if uri == CHANGELOG else html
