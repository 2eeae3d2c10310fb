"""Tells a reader where a page belongs: its goal on the path, or the lab that it answers.

Three pages of the workbook say it, in each language: the front page lists the path, with the time
and the goal of each page, docs/reference/site.md lists what answers each lab, and the glossary says
which page introduces a term.

Edit links, and what to clone, have addresses on the host that the workbook came from. mkdocs's
`repo_url` doesn't fit: Material asks the host's API for it, and mkdocs expects every page below
docs/, where notes aren't.
"""

import logging
import re
from collections.abc import Iterator
from configparser import ConfigParser, Error
from functools import cache
from html import escape, unescape
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urljoin

from mkdocs.structure.pages import Page

from sitelab.pages.tree import Element, parse
from sitelab.rendering import load_words

_log = logging.getLogger("mkdocs.hooks.sitelab")  # below "mkdocs": --strict counts its warnings

_BETWEEN_TERMS = re.compile(r"[,;()]")
_PLACE = re.compile(r'<h[2-6] id="([^"]+)"|<a [^>]*?href="([^"]+)"')


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


class Term(NamedTuple):
    """A row of the glossary: its address, names and meaning, and the page that introduces it."""

    address: str
    names: str
    meaning: str
    page: str


class Wayfinding:
    """Collects the pages of a language while they are rendered, then says where each belongs."""

    def __init__(self) -> None:
        self._pages: dict[str, Page] = {}
        self._path: list[Step] = []
        self._groups: list[Group] = []
        self._glossary: dict[str, list[Term]] = {}  # its rows, by its address
        self.terms: dict[str, list[str]] = {}  # what finds a place at once, by its address
        self.keywords: dict[str, list[str]] = {}  # of sections, by their addresses
        self.rows: list[Term] = []  # of the glossary

    def add(self, html: str, page: Page) -> None:
        """Remember a page, and what its content says of others."""
        self._pages[page.url] = page
        for section in page.meta.get("sections", {}):
            if f'id="{section}"' not in html:
                _log.warning("%s#%s has keywords in `sections`, but isn't there", page.url, section)
        name = page.file.src_uri.partition(".")[0]
        if name == "docs/index":
            self._path = [*_read_path(html, page.url)]
        elif name == "docs/reference/site":
            self._groups = [*_read_groups(html, page.url)]
        elif name == "docs/reference/glossary":
            self._glossary[page.url] = [*_read_terms(html, page.url)]

    def guide(self, language: str) -> None:
        """Write the goal below the title of each page of the path; give each answer its trail.

        A trail leads to the lab and to the other pages of the group. The answers of a lab are each
        other's neighbours, between the lab and the page after it. Those that a menu has follow
        their lab too, but lead on as that menu does.
        """
        words = load_words(language)["path"]
        self._collect_terms()
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
            for before, page in pairwise([lab, *map(self._pages.__getitem__, labels)]):
                page.meta["trail"], page.previous_page = trail, before
                if not page.parent:  # in no menu: the room and the menu are its lab's
                    answers.setdefault(lab.url, []).append(page)
                    page.parent = lab.parent
        for url, pages in answers.items():
            row = [self._pages[url], *pages, self._pages[url].next_page]
            for place, page in enumerate(pages):
                page.previous_page, page.next_page = row[place], row[place + 2]

    def _collect_terms(self) -> None:
        """Set what finds a place at once: a room's first page, a section, or a row of the glossary.

        A term is introduced by the first section of its page that links to its row.
        """
        self.terms, self.keywords = {}, {}
        self.rows = [row for rows in self._glossary.values() for row in rows]
        for url, page in self._pages.items():
            room = page.parent if page.parent and page.parent.children[0] is page else None
            self.terms[url] = [room.title] if room else []
            for section, keywords in page.meta.get("sections", {}).items():
                self.keywords[f"{url}#{section}"] = keywords
        places = {
            url: _find_linking_sections(self._pages[url])
            for _, _, _, url in self.rows
            if url in self._pages
        }
        for row in self.rows:
            names = [name.strip() for name in _BETWEEN_TERMS.split(row.names) if name.strip()]
            for place in (row.address, places.get(row.page, {}).get(row.address, row.page)):
                self.terms.setdefault(place, []).extend(names)


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


def _read_terms(html: str, url: str) -> Iterator[Term]:
    """Yield the rows of the glossary: its first cell has the anchor, its last leads to a page."""
    for row in _find(parse(html), "tr"):
        cells = [*_find(row, "td")]
        link = next(_find(cells[-1], "a"), None) if cells else None
        anchor = (
            next((a.attributes.get("id") for a in _find(cells[0], "a")), None) if cells else None
        )
        if link and anchor:
            names, meaning = (" ".join(cell.text().split()) for cell in cells[:2])
            page = _resolve(link, url).partition("#")[0]
            yield Term(f"{url}#{anchor}", names, meaning, page)


def _find_linking_sections(page: Page) -> dict[str, str]:
    """Return the address of the first section of a page that links to an address, by the latter."""
    sections: dict[str, str] = {}
    section = page.url
    for heading, link in _PLACE.findall(page.content or ""):
        if heading:
            section = f"{page.url}#{unescape(heading)}"
        else:
            sections.setdefault(urljoin(f"/{page.url}", unescape(link)).lstrip("/"), section)
    return sections


# The forms of git's addresses: https://HOST/PATH.git, ssh://git@HOST/PATH, git@HOST:PATH
_ADDRESS = re.compile(r"(?:https://(?:[^@/]+@)?|ssh://(?:[^@/]+@)?|[\w.-]+@)([\w.-]+)[/:](.+)")
_UNKNOWN_ADDRESS = re.compile(r"<!-- address -->.*?<!-- /address -->\s*", re.DOTALL)
_HOSTS = {"github.com": "edit", "gitlab.com": "-/edit", "codeberg.org": "_edit"}


def find_base(root: Path, configured: str) -> str:
    """Return the address to which a file's path is appended, or "" if none is known.

    Args:
        root: the repository's folder.
        configured: the address in the configuration; if it is "", the address is derived from the
            clone's `origin`.
    """
    return configured.rstrip("/") + "/" if configured else derive_base(read_origin(root))


def name_repository(markdown: str, root: Path, configured: str | None) -> str:
    """Return a page whose commands clone from the repository's address, if that is known.

    It is `repo_url` of mkdocs.yml, or else the clone's `origin` on a known host. What the page says
    between the marks `address`, for readers who must find it themselves, is left out then.
    """
    match = _ADDRESS.fullmatch(read_origin(root))
    origin = f"https://{match[1]}/{quote(match[2])}" if match and match[1] in _HOSTS else ""
    if address := configured or origin:
        markdown = _UNKNOWN_ADDRESS.sub("", markdown)
        return markdown.replace("git clone REPOSITORY", f"git clone {address}")
    return markdown


@cache  # each page asks; a build begins with `read_origin.cache_clear()`
def read_origin(root: Path) -> str:
    """Return the address of the clone's `origin`, or ""."""
    config = ConfigParser(strict=False, interpolation=None)
    try:
        config.read(root / ".git" / "config", "utf-8")
        return config.get('remote "origin"', "url", fallback="").strip()
    except (Error, UnicodeDecodeError):
        return ""


def derive_base(url: str) -> str:
    """Return the address to edit files of a git remote, or "" for an unknown host.

    >>> derive_base("git@github.com:someone/shardbook.git")
    'https://github.com/someone/shardbook/edit/main/'
    >>> derive_base("/srv/shardbook.git")
    ''
    """
    match = _ADDRESS.fullmatch(url)
    if not match or match[1] not in _HOSTS:
        return ""
    path = match[2].removesuffix("/").removesuffix(".git")
    return f"https://{match[1]}/{quote(path)}/{_HOSTS[match[1]]}/main/"
