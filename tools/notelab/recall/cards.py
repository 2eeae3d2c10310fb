"""Recall cards: the folded questions of a page, each with a name that stays.

    ??? question gathered "A rank brings a shard of 1 MiB … what is S?"
        S is the output, 8 MiB …

    ??? question number block-bytes "How many bytes does a block send?"
        **1 MiB**: four all-reduces of …

A card's name is the word between `question` and its title, the same in every language; without one
it goes by its place among the page's cards. `number` says that the answer begins with a number in
bold, which what the learner types is held to.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from textwrap import dedent

import msgspec

from notelab.book import view
from notelab.book.workbook import Bench
from notelab.errors import NotelabError
from notelab.lab import lock as lock_file
from notelab.lab import pages
from notelab.lab.lab import Lab
from notelab.lab.lock import Lock
from notelab.lab.pages import Page
from notelab.page import admonition, front_matter
from notelab.recall import quantity
from notelab.recall.quantity import Quantity

_OPENING = re.compile(r'\?{3}\+? ?question((?: +[\w-]+)*) +"(.*)" *')
_BOLD = re.compile(r"\*\*(.+?)\*\*")


class Card(msgspec.Struct, frozen=True):
    """A question and its answer, both Markdown.

    Attributes:
        id: its page's path without ending or language, `#`, its name.
        rows: of the page, 1-based: the first and the last.
        number: that the answer gives, of a card that asks for one.
        evidence: hash of the cited lines that it rests on, "" where there are none.
        page: the file that it stands in.
    """

    id: str
    question: str
    answer: str
    rows: tuple[int, int]
    number: Quantity | None
    evidence: str = ""
    page: Path = Path()


@lru_cache(maxsize=512)  # a served site asks at every save, and one page has changed
def of_page(text: str, place: str) -> tuple[Card, ...]:
    """Return a page's cards in order.

    Args:
        text: of the page.
        place: its original's path from the repository, without the ending.

    Raises:
        NotelabError: a `number` card's answer doesn't begin with one.
    """
    return tuple(_cards(text, place)) if "??? question" in text else ()


def _cards(text: str, place: str) -> Iterator[Card]:
    from markdown_it import MarkdownIt

    taken = front_matter.split(text)[1]
    lines = [""] * taken + text.split("\n")[taken:]
    parsed = MarkdownIt("commonmark").use(admonition.plugin).parse("\n".join(lines))
    openings = ((token, _OPENING.fullmatch(token.info)) for token in parsed if token.map)
    found = ((token, opened) for token, opened in openings if opened)
    for place_on_page, (token, opened) in enumerate(found, 1):
        first, end = token.map or (0, 0)
        answer = dedent("\n".join(lines[first + 1 : end])).strip()
        words = opened[1].split()
        names = [word for word in words if word != "number"] or [str(place_on_page)]
        number = _number(answer, f"{place}: {opened[2]}") if "number" in words else None
        yield Card(f"{place}#{names[0]}", opened[2], answer, (first + 1, end), number)


def _number(answer: str, where: str) -> Quantity:
    bold = _BOLD.match(answer)
    number = quantity.read(bold[1]) if bold else None
    if number is None:
        raise NotelabError(
            f"{where}: the answer of a `number` card begins with no number in bold",
            hint="as in `**768 KiB**: …`, or `**4 ranks**: …`",
        )
    return number


def of_labs(wanted: dict[Path, set[Path] | None], language: str, bench: Bench) -> list[Card]:
    """Return the cards of labs' pages in a language, each once, with what they rest on."""
    found: dict[str, Card] = {}
    for folder, only in wanted.items():
        lab = bench.lab(folder)
        lock = lock_file.load(lab.folder / lock_file.LOCK_FILE) or Lock()
        for page in pages.list_pages(lab):
            if page.language == language and (only is None or page.path in only):
                found |= {card.id: card for card in _resting(page, lab, lock, bench)}
    return list(found.values())


def _resting(page: Page, lab: Lab, lock: Lock, bench: Bench) -> Iterator[Card]:
    """Yield a page's cards with the hash of the lines that they cite; else of all that it cites."""
    seen = view.of_page(page, bench.cache.file_for(lab.root))
    if seen.note is None:
        return
    place = page.family.relative_to(lab.root).as_posix().removesuffix(".md")
    keys = ((name, one) for one in seen.note.citations for name in lock.citations)
    found = ((one.span.row, lock.citation(name, one.key_in(name))) for name, one in keys)
    locked = [(row, entry.sha256) for row, entry in found if entry]
    for card in of_page(seen.text, place):
        first, last = card.rows
        own = {digest for row, digest in locked if first <= row <= last}
        rests = "".join(sorted(own or {digest for _, digest in locked}))
        evidence = sha256(rests.encode()).hexdigest()[:16] if rests else ""
        yield msgspec.structs.replace(card, evidence=evidence, page=page.path)
