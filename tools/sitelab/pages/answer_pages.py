"""Keeps the answers to labs out of the menu and the search until a reader asks for them.

`not_in_nav` of mkdocs.yml lists the pages that answer a lab. Inside a page, the answers are its
`<details class="answers">`.
"""

from mkdocs.config.defaults import MkDocsConfig

from sitelab.pages.tree import Element


def answers_a_lab(uri: str, config: MkDocsConfig) -> bool:
    """Return whether the page with this site path answers a lab."""
    return bool(config.not_in_nav and config.not_in_nav.match_file(uri))


def hide_answers_from_search(page: Element) -> None:
    """Hide a page's folded answers from the search."""
    for element in page.descendants():
        if element.tag == "details" and element.classes[:1] == ["answers"]:
            element.attributes["data-search-exclude"] = "1"
