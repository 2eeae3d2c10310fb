"""What answers a lab stays out of menu and search until a reader asks for it.

Which pages, `not_in_nav` of mkdocs.yml says, where they are kept out of the menu. Which part of a
page, its `<details class="answers">`.
"""

from mkdocs.config.defaults import MkDocsConfig

_FOLDED = '<details class="answers"'


def answers(uri: str, config: MkDocsConfig) -> bool:
    """Tell whether the page with this site path answers a lab."""
    return bool(config.not_in_nav and config.not_in_nav.match_file(uri))


def unsearched(html: str) -> str:
    """Return a page's HTML with what is folded away as answers hidden from the search.

    >>> unsearched('<details class="answers">')
    '<details class="answers" data-search-exclude="1">'
    """
    return html.replace(_FOLDED, f'{_FOLDED} data-search-exclude="1"')
