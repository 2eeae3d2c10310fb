"""A page's links stay in its language if the linked page exists in that language."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt

from tests.docs.page import ROOT, list_pages, spanish_page

# The README is the door to both languages.
PAGES = [page for page in list_pages() if page != ROOT / "README.md"]


def path_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def list_linked_pages(page: Path) -> list[str]:
    """Return the addresses of this repository's pages that `page` links."""
    addresses = []
    # An indented hint is a link's place too; only what stands in a fence or a code span is none.
    text = re.sub(r"^ {4}(?=.*\S)", "", page.read_text("utf-8"), flags=re.M)
    for token in MarkdownIt().enable("table").parse(text):
        for child in token.children or []:
            address = str(child.attrGet("href") or "").partition("#")[0]
            if child.type == "link_open" and address.endswith(".md") and "://" not in address:
                addresses.append(unquote(address))
    return addresses


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_a_page_links_to_pages_of_its_own_language(page: Path) -> None:
    is_spanish = page.name.endswith(".es.md")
    wrong = [
        address
        for address in list_linked_pages(page)
        if address.endswith(".es.md") is not is_spanish
        and (not is_spanish or spanish_page(page.parent / address).exists())
    ]
    assert not wrong, f"{path_of(page)} leads out of its language: {wrong}"


def test_links_are_found_in_paragraphs_tables_and_hints() -> None:
    for page, address in [
        ("docs/theory/03-sharded-data-parallelism.es.md", "01-collectives.es.md"),
        ("docs/labs/03-annotated-reading.es.md", "../reference/rules/N101.es.md"),
        ("docs/reference/notes.es.md", "rules/N503.es.md"),
    ]:
        assert address in list_linked_pages(ROOT / page)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_a_root_pages_links_lead_somewhere(page: str) -> None:
    # What mkdocs holds for the site's pages, for those that it doesn't build.
    lost = [address for address in list_linked_pages(ROOT / page) if not (ROOT / address).is_file()]
    assert lost == []
