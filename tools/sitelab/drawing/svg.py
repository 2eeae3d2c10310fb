"""Cleans an SVG picture: removes everything that would run or load if it were opened by itself.

In a page an SVG is only a picture. A browser that opens its address runs its scripts at the site's
origin, where no page's policy is in force. So only elements and attributes that draw are kept.

The workbook's own figures are written into the page, so that they follow the palette that a reader
chose. The bench's plots stay pictures, of which a telephone gets the narrow drawing. `allowed_html`
allows no SVG in a page; these are added after it, only from docs/assets/figures/.
"""

import re
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from markupsafe import Markup

from sitelab.pages.allowed_html import ALLOWED
from sitelab.pages.tree import Element

_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_TAGS = {_SVG + name for name in ALLOWED["svg"]["tags"]}
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[\w+/=\s]*", re.ASCII)
# Parts of a style that may load or hide something: at-rules, outside addresses, escapes.
_UNSAFE = re.compile(r"@|\\|url\(\s*(?!['\"]?#)|image-set|expression|javascript:", re.IGNORECASE)


def clean_svg(content: bytes) -> bytes:
    """Return an SVG that has only drawing elements, their attributes and addresses inside it.

    Raises:
        ValueError: the content is no SVG.
    """
    try:
        root = ElementTree.fromstring(content)  # noqa: S314  (expat bounds entities)
    except (ElementTree.ParseError, LookupError) as fault:
        raise ValueError(f"it is no XML: {fault}") from fault
    if root.tag != f"{_SVG}svg":
        raise ValueError(f"its root is {root.tag}, not svg")
    _clean(root)
    ElementTree.register_namespace("", _SVG[1:-1])
    ElementTree.register_namespace("xlink", _LINK[1:].partition("}")[0])
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _clean(element: ElementTree.Element) -> None:
    for name, value in list(element.attrib.items()):
        if not _is_allowed(name, value):
            del element.attrib[name]
    for child in list(element):
        unsafe = child.tag == f"{_SVG}style" and (len(child) or _UNSAFE.search(child.text or ""))
        if child.tag not in _TAGS or unsafe:
            element.remove(child)
        else:
            _clean(child)


def _is_allowed(name: str, value: str) -> bool:
    if name in ("href", _LINK):
        return value.startswith("#") or bool(_PICTURE.fullmatch(value))
    return "{" not in name and not name.lower().startswith("on") and not _UNSAFE.search(value)


FOLDER = "assets/figures"
_SOURCE = re.compile(rf".*{FOLDER}/([\w-]+)(?:\.es)?\.svg")

_PLOT = re.compile(r"(.*figures/[\w-]+)-(light|dark)\.svg#gh-\2-mode-only")


def offer_narrow_plots(page: Element) -> None:
    """Let a telephone load the narrow drawing of each of the bench's plots."""

    def offer(image: Element) -> list[Element | str] | None:
        match = image.tag == "img" and _PLOT.fullmatch(image.attributes.get("src", ""))
        if not match:
            return None
        narrow = {"media": "(max-width: 44.98em)", "srcset": f"{match[1]}-narrow-{match[2]}.svg"}
        return [Element("picture", {}, [Element("source", narrow), image])]

    page.replace(offer)


def embed_pictures(page: Element, docs: Path, language: str) -> list[str]:
    """Replace a page's pictures by figures; return the names that docs/assets/figures/ lacks.

    A figure's label is the picture's alternative text. A picture without a figure is not changed.

    Args:
        page: the page's content.
        docs: the folder of the site's sources.
        language: of the page; a figure has a file for each language.
    """
    missing: list[str] = []

    def embed(image: Element) -> list[Element | str] | None:
        match = image.tag == "img" and _SOURCE.fullmatch(image.attributes.get("src", ""))
        if not match:
            return None
        suffix = "" if language == "en" else f".{language}"
        file = docs / FOLDER / f"{match[1]}{suffix}.svg"
        if not file.is_file():
            missing.append(match[1])
            return [image]
        alt = escape(image.attributes.get("alt", ""))
        name = f'role="img" aria-label="{alt}" data-search-exclude="1"'
        svg = file.read_text("utf-8").strip().replace("<svg", f"<svg {name}", 1)
        return [Markup(svg)]  # noqa: S704  (the repository's own)

    page.replace(embed)
    return missing
