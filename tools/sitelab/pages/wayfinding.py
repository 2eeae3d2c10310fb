"""Tells a reader where a page belongs: its goal on the path, or the lab that it answers.

Three pages of the workbook say it, in each language: the front page lists the path, with the time
and the goal of each page, docs/reference/site.md lists what answers each lab, and the glossary says
which page introduces a term.
"""

import re
from collections.abc import Iterator
from html import escape
from typing import NamedTuple
from urllib.parse import urljoin

from mkdocs.structure.pages import Page

from sitelab.pages.tree import Element, parse
from sitelab.rendering import load_words

_BETWEEN_TERMS = re.compile(r"[,;()]")


class Step(NamedTuple):
    """A page of the path: its address, the time that it takes, and what one can do after it."""

    url: str
    time: str
    goal: str


class Group(NamedTuple):
    """Pages that answer a lab, in order: their labels by address, and what they are, or ""."""

    lab: str
    name: str
    labels: dict[str, str]


class Wayfinding:
    """Collects the pages of a language while they are rendered, then says where each belongs."""

    def __init__(self) -> None:
        self._pages: dict[str, Page] = {}
        self._path: list[Step] = []
        self._groups: list[Group] = []
        self._introduced: dict[str, list[str]] = {}
        self.terms: dict[str, list[str]] = {}  # what finds a page at once, by its address

    def add(self, html: str, page: Page) -> None:
        """Remember a page, and what its content says of others."""
        self._pages[page.url] = page
        name = page.file.src_uri.partition(".")[0]
        if name == "docs/index":
            self._path = [*_read_path(html, page.url)]
        elif name == "docs/reference/site":
            self._groups = [*_read_groups(html, page.url)]
        elif name == "docs/reference/glossary":
            self._introduced |= _read_terms(html, page.url)

    def guide(self, language: str) -> None:
        """Write the goal below the title of each page of the path; give each answer its trail.

        A trail leads to the lab and to the other pages of the group. The answers of a lab are each
        other's neighbours, between the lab and the page after it, unless the menu has them.
        """
        words = load_words(language)["path"]
        for url, known in self._pages.items():
            room = known.parent if known.parent and known.parent.children[0] is known else None
            self.terms[url] = [*self._introduced.get(url, ()), *([room.title] if room else ())]
        for url, time, goal in self._path:
            if page := self._pages.get(url):
                page.meta["subtitle"] = escape(time)  # below the title, in the menu
                start = words["goal"].format(time=time)
                line = f'<p class="goal"><b>{escape(start)}</b> {escape(goal)}</p>'
                page.content = (page.content or "").replace("</h1>", f"</h1>{line}", 1)
        answers: dict[str, list[Page]] = {}
        for group in self._groups:
            lab = self._pages.get(group.lab)
            if not lab:
                continue  # the strict build warns of the link
            labels = {url: label for url, label in group.labels.items() if url in self._pages}
            trail = {"title": lab.title, "lab": lab.url, "name": group.name, "labels": labels}
            for page in map(self._pages.__getitem__, labels):
                page.meta["trail"] = trail
                if not page.parent:  # in no menu: the room and the menu are its lab's
                    answers.setdefault(lab.url, []).append(page)
                    page.parent = lab.parent
        for url, pages in answers.items():
            lab = self._pages[url]
            row = [lab, *pages, lab.next_page]
            for place, page in enumerate(pages):
                page.previous_page, page.next_page = row[place], row[place + 2]


def _find(element: Element, tag: str) -> Iterator[Element]:
    return (each for each in element.descendants() if each.tag == tag)


def _find_items(html: str, name: str) -> Iterator[Element]:
    """Yield the list items inside the elements whose first class is `name`."""
    for element in parse(html).descendants():
        if element.classes[:1] == [name]:
            yield from _find(element, "li")


def _resolve(link: Element, url: str) -> str:
    return urljoin(f"/{url}", link.attributes.get("href", "")).lstrip("/")


def _read_path(html: str, url: str) -> Iterator[Step]:
    for item in _find_items(html, "path"):
        link, time = next(_find(item, "a"), None), next(_find(item, "em"), None)
        if link and time:
            goal = item.text().partition(time.text())[2]
            yield Step(_resolve(link, url), time.text().rstrip("."), " ".join(goal.split()))


def _read_groups(html: str, url: str) -> Iterator[Group]:
    for item in _find_items(html, "door"):
        links = [(_resolve(a, url), escape(" ".join(a.text().split()))) for a in _find(item, "a")]
        name = next((text for text in item.children if isinstance(text, str)), "")
        if links:
            yield Group(links[0][0], escape(name.strip(" ,:\n")), dict(links[1:]))


def _read_terms(html: str, url: str) -> dict[str, list[str]]:
    """Return the glossary's terms, by its own address and by that of the page that introduces them.

    The first cell of a row has the terms; its last cell leads to the page.
    """
    terms: dict[str, list[str]] = {}
    for row in _find(parse(html), "tr"):
        cells = [*_find(row, "td")]
        for link in _find(cells[-1], "a") if cells else ():
            names = _BETWEEN_TERMS.split(cells[0].text())
            for page in (_resolve(link, url).partition("#")[0], url):
                terms.setdefault(page, []).extend(name.strip() for name in names if name.strip())
    return terms
