"""Writes the finished pages as a plain tree that any generator of Markdown sites can build.

    SHARDBOOK_PLAIN=FOLDER mkdocs build

A page is its headings in Markdown, from which a generator makes its menus, and between them HTML
that is finished: citations with their cards, formulas, figures, drawn diagrams. Each language has a
folder with a mkdocs.yml of its own. Nothing in it needs Material, a plugin or a hook; .ci/zensical
builds it with another generator and says how far the two sites differ.
"""

import json
import posixpath
import re
import shutil
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

from sitelab.pages.tree import Element, parse

_LINK = re.compile(r"""(<(?:a|img|source)\b[^>]*?\b(?:href|src)=")([^"]*)""")
_HEADING = re.compile(r"h[1-6]")


def write_page(folder: Path, language: str, page: Page, html: str) -> None:
    """Write a page's finished content."""
    file = folder / language / "docs" / _place(page, language)
    file.parent.mkdir(parents=True, exist_ok=True)
    title = json.dumps(str(page.title), ensure_ascii=False)
    linked = _LINK.sub(lambda link: link[1] + _from_source(link[2], page.url), html)
    file.write_text(f"---\ntitle: {title}\n---\n\n{to_markdown(linked)}", "utf-8")


def _from_source(address: str, url: str) -> str:
    """Return a relative address, which starts from the page, as one from the page's file."""
    path, mark, anchor = address.partition("#")
    if not path or "://" in path or path.startswith(("/", "mailto:")):
        return address
    target = posixpath.normpath(posixpath.join("/", url, path)).lstrip("/")
    file = (f"{target}.md" if target else "index.md") if path.endswith(("/", "..", ".")) else target
    start = posixpath.dirname(url.rstrip("/"))
    return posixpath.relpath(file, start or ".") + mark + anchor


def _place(page: Page, language: str) -> str:
    """Return the path of a page's file: `a/b/` is a/b.md, as its links assume."""
    url = page.url.removeprefix("" if language == "en" else f"{language}/")
    return f"{url.rstrip('/') or 'index'}.md"


def to_markdown(html: str) -> str:
    r"""Return content with its outermost headings in Markdown and all else as it is.

    >>> to_markdown('<h2 id="a">A <code>b</code><a class="headerlink" href="#a">¶</a></h2><p>c</p>')
    '## A <code>b</code> {#a}\n\n<p>c</p>\n'
    """
    parts = []
    for child in parse(html).children:
        if isinstance(child, Element) and _HEADING.fullmatch(child.tag):
            child.children = [
                part
                for part in child.children
                if not (isinstance(part, Element) and "headerlink" in part.classes)
            ]
            inner = Element(children=child.children).html().strip()
            anchor = f" {{#{child.attributes['id']}}}" if child.attributes.get("id") else ""
            parts.append(f"{'#' * int(child.tag[1])} {inner}{anchor}")
        elif isinstance(child, Element):
            parts.append(child.html())
        elif child.strip():
            parts.append(Element(children=[child]).html())
    return "\n\n".join(parts) + "\n"


def write_settings(folder: Path, language: str, config: MkDocsConfig, nav: Navigation) -> None:
    """Write a language's mkdocs.yml, which names its menu, its styles and its scripts."""
    settings: dict[str, Any] = {
        "site_name": config.site_name,
        "docs_dir": "docs",
        "theme": {"name": "material", "language": language, "font": False},
        "markdown_extensions": ["attr_list", "md_in_html", {"toc": {"permalink": True}}],
        "extra_css": [str(path) for path in config.extra_css],
        "extra_javascript": [str(getattr(path, "path", path)) for path in config.extra_javascript],
        "nav": [_entry(item, language) for item in nav.items],
    }
    # JSON is YAML, too.
    (folder / language / "mkdocs.yml").write_text(
        json.dumps(settings, ensure_ascii=False, indent=1), "utf-8"
    )


def _entry(item: Any, language: str) -> dict[str, Any]:
    if isinstance(item, Section):
        return {item.title: [_entry(child, language) for child in item.children]}
    return {str(item.title): _place(item, language)}


def write_files(folder: Path, language: str, site: Path) -> None:
    """Copy what pages load, and is no page, from the built site."""
    for file in sorted(site.rglob("*")):
        place = file.relative_to(site)
        if (file.is_file() and file.suffix not in (".html", ".gz")) or "citations" in place.parts:
            if place.parts[0] in ("search", "es", "sitemap.xml") or file.is_dir():
                continue
            target = folder / language / "docs" / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
