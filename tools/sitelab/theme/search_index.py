"""Splits the search index by language, so that a reader finds pages of one language.

mkdocs writes one index for the whole site, and Material's search looks for it below the base that
a page names. So the index is split, and Spanish pages name the Spanish part of the site as base.

A page fetches it when its reader begins to search, so it holds only words that readers search for:
no source of a diagram that mermaid draws, no output of commands, no numbers of tables, and only the
first sentences of an API entry.

What teaches comes first: pages have weights, and the keywords (`tags`) of a page, which the search
puts above all titles, belong to the page. A section has the keywords that the page's `sections`
give it. A term of the glossary finds the section that introduces it, then its row, which is an
entry of its own. docs/assets/javascripts/search-words.js matches a query with them.
"""

import json
import logging
import re
from html import escape
from pathlib import Path

from sitelab.pages.tree import Element
from sitelab.pages.wayfinding import Wayfinding

_log = logging.getLogger("mkdocs.hooks.sitelab")  # below "mkdocs": --strict counts its warnings

_API = re.compile(r"reference/api/\w+/(#?)")
_FIRST = re.compile(r"<p>.*?</p>", re.DOTALL)
_FILES = re.compile(r"shardlab\.\S+ <p>.*?</p>", re.DOTALL)
_WEIGHTS = {
    "docs/theory/": 2,
    "docs/labs/": 1.5,
    "docs/reference/glossary": 0.5,  # what teaches a term comes before what defines it
    "docs/reference/api/": 0.2,
    "docs/reference/rules/N": 0.2,
}
# Sections that ask: a word of their heading ("memory") is not what they are about.
_ASKING = {"from-memory", "de-memoria", "worked-problems", "problemas-resueltos"}
_WEIGHT_OF_ASKING = 0.01
_WEIGHT_OF_ROW = 0.2  # of the glossary
_SOURCES = (["mermaid"], ["language-text", "highlight"])


def weigh_page(uri: str) -> dict[str, float]:
    """Return the search's settings for a page: its weight, if it isn't 1."""
    weights = [weight for folder, weight in _WEIGHTS.items() if uri.startswith(folder)]
    return {"boost": weights[0]} if weights else {}


def hide_from_search(page: Element) -> None:
    """Hide diagrams' source, commands' output, numbers and answers to labs from the search.

    If the numbers of a table have anchors, as in the results, all of its rows are hidden. Answers
    to a lab are in `<details class="answers">`.
    """
    for element in page.descendants():
        source = element.tag == "div" and element.classes in _SOURCES
        number = element.tag == "td" and element.attributes.get("style") == "text-align:right"
        rows = element.tag == "tbody" and any(_is_anchor(cell) for cell in element.descendants())
        answers = element.tag == "details" and element.classes[:1] == ["answers"]
        if source or number or rows or answers:
            element.attributes["data-search-exclude"] = "1"


def _is_anchor(element: Element) -> bool:
    return element.tag == "a" and "id" in element.attributes


def extend_worker(site: Path) -> None:
    """Append the script that matches queries to the worker of Material's search."""
    script = (site / "assets/javascripts/search-words.js").read_text("utf-8")
    for worker in (site / "assets/javascripts/workers").glob("search.*.js"):
        if script not in (text := worker.read_text("utf-8")):
            worker.write_text(f"{text}\n{script}", "utf-8")


def split_index(site: Path, language: str, ways: Wayfinding) -> None:
    """Move the entries of `language` from the site's index into an index of that language.

    `ways` knows what finds a page or a section at once, and the rows of the glossary. Do nothing if
    there is no index, or if it is already split.
    """
    path = site / "search" / "search_index.json"
    if not path.is_file():
        return
    index = json.loads(path.read_text(encoding="utf-8"))
    prefix = f"{language}/"
    index["docs"] += [
        {
            "location": row.address,
            "title": escape(row.names),
            "text": f"<p>{escape(row.meaning)}</p>",
            "boost": _WEIGHT_OF_ROW,
        }
        for row in ways.rows
    ]
    for place in sorted({*ways.keywords} - {entry["location"] for entry in index["docs"]}):
        _log.warning("%s has keywords in `sections`, and there is no such section", place)
    for entry in index["docs"]:
        if api := _API.match(entry["location"].removeprefix(prefix)):
            first = _FIRST.findall(entry["text"])[:1] if api[1] else _FILES.findall(entry["text"])
            entry["text"] = " ".join(first)
        if "#" in entry["location"]:
            entry.pop("tags", None)
        if entry["location"] in ways.keywords:
            entry["tags"] = ways.keywords[entry["location"]]
        if entry["location"].rpartition("#")[2] in _ASKING:
            entry["boost"] = _WEIGHT_OF_ASKING
        if entry["location"] in ways.terms:
            entry["terms"] = ways.terms[entry["location"]]
    of_language = [entry for entry in index["docs"] if entry["location"].startswith(prefix)]
    if not of_language:
        return
    of_default = [entry for entry in index["docs"] if not entry["location"].startswith(prefix)]
    for entry in of_language:
        entry["location"] = entry["location"].removeprefix(prefix)
    config = index["config"]
    _write(path, {"config": config | {"lang": ["en"]}, "docs": of_default})
    _write(
        site / language / "search" / path.name,
        {"config": config | {"lang": [language]}, "docs": of_language},
    )


def _write(path: Path, index: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text, encoding="utf-8")
