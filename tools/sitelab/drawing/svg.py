"""Cleans an SVG picture: removes everything that would run or load if it were opened by itself.

In a page an SVG is only a picture. A browser that opens its address runs its scripts at the site's
origin, where no page's policy is in force. So only elements and attributes that draw are kept.
"""

import re
from xml.etree import ElementTree

from sitelab.pages.allowed_html import ALLOWED

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
