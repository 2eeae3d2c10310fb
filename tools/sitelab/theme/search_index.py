"""One search index a language: a reader of one finds pages of that one.

mkdocs writes one index for the whole site, and Material's search looks for it below the base that
a page names. So the index is split, and Spanish pages name the Spanish part of the site as theirs.

Every page fetches it, so it holds what a reader asks for in words: no diagram's source, nothing
that a command printed, no numbers of tables, and of a function of the API its first sentences.
"""

import json
import re
from pathlib import Path

from sitelab.pages.tree import Element

_API = re.compile(r"reference/api/\w+/(#?)")
_FIRST = re.compile(r"<p>.*?</p>", re.DOTALL)
_FILES = re.compile(r"shardlab\.\S+ <p>.*?</p>", re.DOTALL)
_SOURCES = (["mermaid"], ["language-text", "highlight"])


def hide_from_search(page: Element) -> None:
    """Hide from the search a page's diagrams' source, what commands printed, and numbers.

    Of a table whose numbers have addresses, as those of results do, all rows are hidden.
    """
    for element in page.below():
        source = element.tag == "div" and element.classes in _SOURCES
        number = element.tag == "td" and element.attributes.get("style") == "text-align:right"
        rows = element.tag == "tbody" and any(_is_address(cell) for cell in element.below())
        if source or number or rows:
            element.attributes["data-search-exclude"] = "1"


def _is_address(element: Element) -> bool:
    return element.tag == "a" and "id" in element.attributes


def split(site: Path, language: str) -> None:
    """Move the entries of `language` from the site's index into one of their own.

    Does nothing where there is no index, or where it has been split already.
    """
    path = site / "search" / "search_index.json"
    if not path.is_file():
        return
    index = json.loads(path.read_text(encoding="utf-8"))
    prefix = f"{language}/"
    for entry in index["docs"]:
        if api := _API.match(entry["location"].removeprefix(prefix)):
            first = _FIRST.findall(entry["text"])[:1] if api[1] else _FILES.findall(entry["text"])
            entry["text"] = " ".join(first)
    theirs = [entry for entry in index["docs"] if entry["location"].startswith(prefix)]
    if not theirs:
        return
    ours = [entry for entry in index["docs"] if not entry["location"].startswith(prefix)]
    for entry in theirs:
        entry["location"] = entry["location"].removeprefix(prefix)
    config = index["config"]
    _write(path, {"config": config | {"lang": ["en"]}, "docs": ours})
    _write(
        site / language / "search" / path.name,
        {"config": config | {"lang": [language]}, "docs": theirs},
    )


def _write(path: Path, index: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text, encoding="utf-8")


def rebase(html: str, base: str, language_base: str) -> str:
    """Let a page's search look below `language_base` instead of `base`, both relative to it."""
    return html.replace(f'"base": {json.dumps(base)}', f'"base": {json.dumps(language_base)}', 1)
