"""The site builds strictly, in both languages, and loads nothing from any other host."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from notelab import __version__
from notelab.page import reading
from sitelab.pages import workbook_pages

REPOSITORY = Path(__file__).parents[2]
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Loaded(HTMLParser):
    """Collects the addresses that a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") in ("canonical", "alternate", "next", "prev"):
            return
        address = values.get(LOADS.get(tag, "")) or values.get("data-card")
        if address:
            self.addresses.append(address)


def list_sources() -> dict[Path, Path]:
    """Return the path of every page, by its path in the site's tree of sources."""
    docs = REPOSITORY / "docs"
    ours = workbook_pages.find_files(REPOSITORY)
    return {page.relative_to(docs): page for page in docs.rglob("*.md")} | {
        Path(uri): page for uri, page in ours.items() if page.suffix == ".md"
    }


@pytest.fixture(scope="module")
def loaded_addresses(site: Path) -> dict[Path, list[str]]:
    """Return the addresses that each page of the site makes a browser load."""
    by_page = {}
    for page in sorted(site.rglob("*.html")):
        parser = Loaded()
        parser.feed(page.read_text())
        by_page[page] = parser.addresses
    return by_page


def test_every_page_is_there_in_both_languages(site: Path) -> None:
    english = {uri for uri in list_sources() if not uri.name.endswith(".es.md")}
    english = {uri.with_suffix("") for uri in english}
    assert len(english) > 40
    assert Path("experiments/35-reading-notes/synthesis") in english
    for page in english:
        name = Path("index.html") if page.name == "index" else Path(page.name) / "index.html"
        where = page.parent / name
        assert (site / where).is_file(), where
        assert (site / "es" / where).is_file(), where
        assert 'lang="es"' in (site / "es" / where).read_text()[:400]


def test_no_page_loads_anything_from_another_host(loaded_addresses: dict[Path, list[str]]) -> None:
    assert len(loaded_addresses) > 200
    for page, addresses in loaded_addresses.items():
        foreign = [a for a in addresses if urlsplit(a).netloc]
        assert not foreign, (page, foreign)


def test_every_local_file_that_a_page_loads_is_in_the_site(
    site: Path, loaded_addresses: dict[Path, list[str]]
) -> None:
    for page, addresses in loaded_addresses.items():
        for address in addresses:
            path = urlsplit(address).path
            where = site / path.lstrip("/") if path.startswith("/") else page.parent / path
            assert where.resolve().exists(), (page.relative_to(site), address)


def test_each_languages_search_has_every_section_even_where_both_read_alike(site: Path) -> None:
    def places(index: Path) -> Counter[str]:
        entries = json.loads(index.read_text())["docs"]
        return Counter(entry["location"].partition("#")[0] for entry in entries)

    english, spanish = (site / part / "search/search_index.json" for part in ("", "es"))
    assert places(english) == places(spanish)
    assert places(english)  # test_answer_pages.py checks which pages


@pytest.mark.parametrize("part", ["", "es"])
def test_search_is_light_it_has_no_diagrams_source_and_of_the_api_the_first_words(
    site: Path, part: str
) -> None:
    entries = json.loads((site / part / "search/search_index.json").read_text())["docs"]
    api = [entry for entry in entries if re.match(r"reference/api/\w+/#", entry["location"])]
    assert len(api) > 200
    assert all(entry["text"].count("<p>") <= 1 and "<pre>" not in entry["text"] for entry in api)
    results = "".join(e["text"] for e in entries if "/RESULTS/" in e["location"])
    assert "<p>" in results  # what is said of the rows, and none of the 900
    assert len(results) < 20_000
    assert "152 / 3" not in results
    theory = "".join(e["text"] for e in entries if e["location"].startswith("theory/"))
    assert theory
    assert not re.search("flowchart (TB|LR|BT)|dateFormat|sequenceDiagram", theory)


def test_every_pages_foot_leads_to_what_has_changed_in_this_version(site: Path) -> None:
    for part in ("", "es/"):
        foot = (site / part / "labs/00-ffn-by-hand/index.html").read_text().split("<footer")[1]
        assert f"Shardbook {__version__}" in foot
        assert 'href="../../CHANGELOG/"' in foot
        changelog = (site / part / "CHANGELOG/index.html").read_text()
        newest = re.search("<h2 id=[^>]*>([^ <]+)", changelog)
        assert newest and newest[1] == ("Unreleased" if ".dev" in __version__ else __version__)
        assert '<div lang="en">' in changelog


def test_without_an_address_of_its_own_the_site_has_no_sitemap(site: Path) -> None:
    assert not list(site.glob("sitemap*"))


def test_diagrams_reach_the_page_as_drawings(site: Path) -> None:
    for uri, source in list_sources().items():
        wanted = len(reading.read(source.read_text()).diagrams)
        if not wanted or uri.name.startswith("index."):
            continue
        folder = site / "es" if uri.name.endswith(".es.md") else site
        name = uri.name.removesuffix(".md").removesuffix(".es")
        html = (folder / uri.parent / name / "index.html").read_text()
        assert html.count('<div class="mermaid drawn"') == wanted, uri
        assert "data-mermaid" not in html  # nor does such a page ever load mermaid


def test_no_mark_of_the_source_is_left_on_a_page(site: Path) -> None:
    """A list that its paragraph swallowed, a bar that was escaped for a table."""
    leftover = re.compile(
        r"<p>(?:(?!</p>|<code>).)*\n- |(?<!</span>)<code>(?:(?!</code>).)*\\\|", re.DOTALL
    )
    for page in sorted(site.rglob("index.html")):
        match = leftover.search(page.read_text("utf-8"))
        assert not match, (page, match)
