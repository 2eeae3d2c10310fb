"""Scans the HTML inside a page once, from left to right: its words, links and drawings.

`html.parser` is not used: it takes quadratic time over `<a <a <a …` and raises an error on `<![`,
and a page is untrusted. This scanner never goes back, so its time is linear in the text.
"""

import html
import re

import msgspec

_DRAWING_TAGS = {"canvas", "embed", "frame", "iframe", "image", "img", "link", "object", "picture"}
_DRAWING_TAGS |= {"script", "style", "svg", "video"}
_TAG = re.compile(r"</?([A-Za-z][^\s/>]*)")
_REST_OF_TAG = re.compile(r"""(?:[^"'>]|"[^"]*"|'[^']*')*+>""")
_ATTRIBUTE = re.compile(r"""([^\s"'>/=]++)(?:\s*+=\s*+("[^"]*"|'[^']*'|[^\s"'>]++))?""")
# A reader sees or hears these attributes, so a sentence in one counts as text of the page.
_TEXT_ATTRIBUTES = {
    "title",
    "alt",
    "aria-label",
    "aria-description",
    "placeholder",
    "label",
    "summary",
}
_IMAGE_ATTRIBUTES = {"background", "poster", "srcset"}
# Tags that do not separate words: `<b>T</b>itle` is one word.
_INLINE_TAGS = {"a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "dfn", "em", "i"}
_INLINE_TAGS |= {"ins", "kbd", "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup"}
_INLINE_TAGS |= {"time", "tt", "u", "var"}


class HtmlContent(msgspec.Struct):
    """What a piece of HTML holds.

    `text` is the text that a reader can read. `drawings` are the tags that draw and `links` the
    targets of each `<a href>`, each with its offset.
    """

    text: str
    drawings: list[tuple[str, int]]
    links: list[tuple[str, int]]


def scan(piece: str) -> HtmlContent:
    """Scan a piece of HTML; never raises an error."""
    text: list[str] = []
    content = HtmlContent("", [], [])
    position = 0
    while (opening := piece.find("<", position)) >= 0:
        text.append(piece[position:opening])
        if piece.startswith("<!--", opening):
            end = piece.find("-->", opening)
            position = end + 3 if end >= 0 else len(piece)
            continue
        tag = _TAG.match(piece, opening)
        if tag is None:
            text.append("<")
            position = opening + 1
            continue
        name = tag[1].lower()
        rest = _REST_OF_TAG.match(piece, tag.end())
        position = rest.end() if rest else len(piece)
        attributes = piece[tag.end() : position]
        if name not in _INLINE_TAGS:
            text.append(" ")
        if not piece.startswith("</", opening):
            text += _read_attributes(name, attributes, opening, content)
        if not rest:  # a browser hides an unclosed tag, but a reader of the file sees it
            text.append(f" {attributes}")
    text.append(piece[position:])
    content.text = html.unescape("".join(text))
    return content


def _read_attributes(name: str, attributes: str, offset: int, content: HtmlContent) -> list[str]:
    """Add a tag's drawings and links to `content`; return the words in its attributes."""
    words = []
    draws = name in _DRAWING_TAGS
    for name_text, quoted in _ATTRIBUTE.findall(attributes):
        key, value = name_text.lower(), html.unescape(quoted.strip("\"'"))
        if key in _TEXT_ATTRIBUTES:
            words.append(f" {value} ")
        elif key == "href" and name == "a":
            content.links.append((value, offset))
        elif key == "class" and "mermaid" in value.lower().split():
            content.drawings.append((f'<{name} class="mermaid">', offset))
        picture = key in _IMAGE_ATTRIBUTES or (key == "style" and "url(" in value.lower())
        draws = draws or picture or (name == "input" and (key, value.lower()) == ("type", "image"))
    if draws:
        content.drawings.append((f"<{name}>", offset))
    return words
