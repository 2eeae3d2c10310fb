"""A page's HTML as a tree, which is parsed once, changed by the site's parts and written once.

Citations, formulas, figures and numbers are found in the texts and elements of this tree. Text in
an attribute is never taken for one of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser

from markupsafe import Markup

VOID = {"br", "col", "hr", "img", "source"}


@dataclass(slots=True)
class Element:
    """An element; the page itself is one without a tag.

    Attributes:
        tag: its name in lower case, "" for the page.
        attributes: by name, unescaped.
        children: elements, texts (str), and the site's own HTML (Markup).
    """

    tag: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    children: "list[Element | str]" = field(default_factory=list)

    @property
    def classes(self) -> list[str]:
        """The names in its class attribute."""
        return self.attributes.get("class", "").split()

    def text(self) -> str:
        """Return the text in the element and its descendants, without the site's own HTML."""
        parts = (child.text() if isinstance(child, Element) else child for child in self.children)
        return "".join(part for part in parts if not isinstance(part, Markup))

    def plain_text(self) -> str | None:
        """Return the element's text if it has no other child, else None."""
        (only,) = self.children if len(self.children) == 1 else (None,)
        return only if isinstance(only, str) and not isinstance(only, Markup) else None

    def descendants(self) -> "Iterator[Element]":
        """Yield the elements inside this one, in the order of the page."""
        for child in list(self.children):
            if isinstance(child, Element):
                yield child
                yield from child.descendants()

    def replace(self, change: "Callable[[Element], Sequence[Element | str] | None]") -> None:
        """Replace each descendant by the nodes that `change` returns; None keeps it, searched."""
        nodes: list[Element | str] = []
        for child in self.children:
            replacement = change(child) if isinstance(child, Element) else None
            if replacement is None and isinstance(child, Element):
                child.replace(change)
            nodes += [child] if replacement is None else replacement
        self.children = nodes

    def replace_texts(
        self, change: "Callable[[str], Sequence[Element | str]]", skipped_tags: frozenset[str]
    ) -> None:
        """Replace each text by the nodes that `change` returns, except inside `skipped_tags`."""
        nodes: list[Element | str] = []
        for child in self.children:
            if isinstance(child, Element):
                if child.tag not in skipped_tags:
                    child.replace_texts(change, skipped_tags)
                nodes.append(child)
            else:
                nodes += [child] if isinstance(child, Markup) else change(child)
        self.children = nodes

    def html(self) -> str:
        """Return the element as HTML."""
        parts: list[str] = []
        self._write(parts)
        return "".join(parts)

    def _write(self, parts: list[str]) -> None:
        if self.tag:
            values = (f' {name}="{escape(value)}"' for name, value in self.attributes.items())
            parts.append(f"<{self.tag}{''.join(values)}>")
        for child in self.children:
            if isinstance(child, Element):
                child._write(parts)
            else:
                parts.append(child if isinstance(child, Markup) else escape(child, quote=False))
        if self.tag and self.tag not in VOID:
            parts.append(f"</{self.tag}>")


def parse(html: str) -> Element:
    """Return the tree of HTML in which each element is closed, as `clean_html` writes it."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    return parser.page


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Element()
        self._open = [self.page]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if len(self._open) > 1 and self._open[-1].tag == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        children = self._open[-1].children
        if children and isinstance(children[-1], str):
            children[-1] += data
        else:
            children.append(data)
