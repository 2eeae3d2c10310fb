"""Recall cards: the folded questions of a page, each with a permanent name.

    ??? question gathered "A rank brings a shard of 1 MiB … what is S?"
        S is the output, 8 MiB …

    ??? question number block-bytes "How many bytes does a block send?"
        **1 MiB**: four all-reduces of …

The name is the word between `question` and the title, and is the same in every language. A card
without a name gets its position among the page's cards. `number` says that the answer begins with a
bold number, with which the learner's answer is compared.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from textwrap import dedent

import msgspec

from notelab.book import parsed_page
from notelab.book.workbook import CheckSession
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
    """A question and its answer, both in Markdown.

    Attributes:
        id: the page's path without ending and language, `#`, and the card's name.
        rows: the first and the last row on the page, counted from 1.
        number: the number in the answer, for a card that asks for one.
        evidence: the hash of the cited lines that the answer depends on, or "".
        page: the file that holds the card.
    """

    id: str
    question: str
    answer: str
    rows: tuple[int, int]
    number: Quantity | None
    evidence: str = ""
    page: Path = Path()


@lru_cache(maxsize=512)  # a served site parses at every save, when one page has changed
def parse_cards(text: str, place: str) -> tuple[Card, ...]:
    """Return the cards of a page in order.

    Args:
        text: the page's text.
        place: the original's path from the repository, without the ending.

    Raises:
        NotelabError: the answer of a `number` card does not begin with a number.
    """
    return tuple(_find_cards(text, place)) if "??? question" in text else ()


def _find_cards(text: str, place: str) -> Iterator[Card]:
    from markdown_it import MarkdownIt

    front_matter_lines = front_matter.split(text)[1]
    lines = [""] * front_matter_lines + text.split("\n")[front_matter_lines:]
    parsed = MarkdownIt("commonmark").use(admonition.plugin).parse("\n".join(lines))
    openings = ((token, _OPENING.fullmatch(token.info)) for token in parsed if token.map)
    questions = ((token, match) for token, match in openings if match)
    for place_on_page, (token, match) in enumerate(questions, 1):
        first, end = token.map or (0, 0)
        answer = dedent("\n".join(lines[first + 1 : end])).strip()
        words = match[1].split()
        names = [word for word in words if word != "number"] or [str(place_on_page)]
        number = _parse_number(answer, f"{place}: {match[2]}") if "number" in words else None
        yield Card(f"{place}#{names[0]}", match[2], answer, (first + 1, end), number)


def _parse_number(answer: str, where: str) -> Quantity:
    bold = _BOLD.match(answer)
    number = quantity.read(bold[1]) if bold else None
    if number is None:
        raise NotelabError(
            f"{where}: the answer of a `number` card doesn't begin with a number in bold",
            hint="write it like `**768 KiB**: …`, or `**4 ranks**: …`",
        )
    return number


def collect_cards(
    labs: dict[Path, set[Path] | None], language: str, bench: CheckSession
) -> list[Card]:
    """Return the cards of labs' pages in a language, each once, with their evidence."""
    cards: dict[str, Card] = {}
    for folder, wanted_pages in labs.items():
        lab = bench.lab(folder)
        lock = lock_file.load(lab.folder / lock_file.LOCK_FILE) or Lock()
        for page in pages.list_pages(lab):
            if page.language == language and (wanted_pages is None or page.path in wanted_pages):
                cards |= {card.id: card for card in _add_evidence(page, lab, lock, bench)}
    return list(cards.values())


def _add_evidence(page: Page, lab: Lab, lock: Lock, bench: CheckSession) -> Iterator[Card]:
    """Yield a page's cards with a hash of the lines that they cite, else that the page cites."""
    page_view = parsed_page.parse(page, bench.cache.file_for(lab.root))
    if page_view.note is None:
        return
    place = page.family.relative_to(lab.root).as_posix().removesuffix(".md")
    keys = ((name, citation) for citation in page_view.note.citations for name in lock.citations)
    entries = (
        (citation.span.row, lock.citation(name, citation.key_in(name))) for name, citation in keys
    )
    locked = [(row, entry.sha256) for row, entry in entries if entry]
    for card in parse_cards(page_view.text, place):
        first, last = card.rows
        card_digests = {digest for row, digest in locked if first <= row <= last}
        digests_text = "".join(sorted(card_digests or {digest for _, digest in locked}))
        evidence = sha256(digests_text.encode()).hexdigest()[:16] if digests_text else ""
        yield msgspec.structs.replace(card, evidence=evidence, page=page.path)
