"""What answers a lab stays out of menu and search until a reader asks for it.

Which pages, `not_in_nav` of mkdocs.yml says, where they are kept out of the menu. Which part of a
page, its `<details class="answers">`.
"""

from mkdocs.config.defaults import MkDocsConfig

from sitelab.pages.tree import Element


def answers(uri: str, config: MkDocsConfig) -> bool:
    """Tell whether the page with this site path answers a lab."""
    return bool(config.not_in_nav and config.not_in_nav.match_file(uri))


def hide_answers_from_search(page: Element) -> None:
    """Hide from the search what a page folds away as answers."""
    for element in page.below():
        if element.tag == "details" and element.classes[:1] == ["answers"]:
            element.attributes["data-search-exclude"] = "1"
