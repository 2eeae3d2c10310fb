"""The HTML inside a page, scanned once from left to right: its words, and what in it draws.

Not `html.parser`: that one takes quadratic time over `<a <a <a …` and raises on `<![`, and a page
is untrusted. Nothing here goes back, so time grows with the text and with nothing else.
"""

import html
import re

import msgspec

_DRAWS = {"canvas", "embed", "frame", "iframe", "image", "img", "link", "object", "picture"}
_DRAWS |= {"script", "style", "svg", "video"}
_TAG = re.compile(r"</?([A-Za-z][^\s/>]*)")
_REST_OF_TAG = re.compile(r"""(?:[^"'>]|"[^"]*"|'[^']*')*+>""")
_ATTRIBUTE = re.compile(r"""([^\s"'>/=]++)(?:\s*+=\s*+("[^"]*"|'[^']*'|[^\s"'>]++))?""")
# Attributes that a reader sees or hears; a sentence in one is a sentence of the page.
_SPOKEN = {"title", "alt", "aria-label", "aria-description", "placeholder", "label", "summary"}
_PICTURES = {"background", "poster", "srcset"}
# Tags that part no words: `<b>T</b>itle` is one.
_INSIDE_WORDS = {"a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "dfn", "em", "i"}
_INSIDE_WORDS |= {"ins", "kbd", "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup"}
_INSIDE_WORDS |= {"time", "tt", "u", "var"}


class Scanned(msgspec.Struct):
    """`text` is what a reader can read; the rest are pairs of a thing and its offset.

    `drawn` says what draws, `links` gives the target of each `<a href>`.
    """

    text: str
    drawn: list[tuple[str, int]]
    links: list[tuple[str, int]]


def scan(piece: str) -> Scanned:
    """Scan a piece of HTML; never raises, whatever it is."""
    text: list[str] = []
    found = Scanned("", [], [])
    at = 0
    while (opening := piece.find("<", at)) >= 0:
        text.append(piece[at:opening])
        if piece.startswith("<!--", opening):
            end = piece.find("-->", opening)
            at = end + 3 if end >= 0 else len(piece)
            continue
        tag = _TAG.match(piece, opening)
        if tag is None:
            text.append("<")
            at = opening + 1
            continue
        name = tag[1].lower()
        closed = _REST_OF_TAG.match(piece, tag.end())
        at = closed.end() if closed else len(piece)
        inside = piece[tag.end() : at]
        if name not in _INSIDE_WORDS:
            text.append(" ")
        if not piece.startswith("</", opening):
            text += _attributes(name, inside, opening, found)
        if not closed:  # a browser shows nothing of it; a reader of the file does
            text.append(f" {inside}")
    text.append(piece[at:])
    found.text = html.unescape("".join(text))
    return found


def _attributes(name: str, inside: str, at: int, found: Scanned) -> list[str]:
    """Note what a tag draws and links to; return the words in its attributes."""
    words = []
    draws = name in _DRAWS
    for written, quoted in _ATTRIBUTE.findall(inside):
        key, value = written.lower(), html.unescape(quoted.strip("\"'"))
        if key in _SPOKEN:
            words.append(f" {value} ")
        elif key == "href" and name == "a":
            found.links.append((value, at))
        elif key == "class" and "mermaid" in value.lower().split():
            found.drawn.append((f'<{name} class="mermaid">', at))
        picture = key in _PICTURES or (key == "style" and "url(" in value.lower())
        draws = draws or picture or (name == "input" and (key, value.lower()) == ("type", "image"))
    if draws:
        found.drawn.append((f"<{name}>", at))
    return words
