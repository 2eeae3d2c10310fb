"""Recall cards: the folded questions of a page, each with a permanent name.

    ??? question gathered "A rank brings a shard of 1 MiB … what is S?"
        S is the output, 8 MiB …

    ??? question number block-bytes "How many bytes does a block send?"
        **1 MiB**: four all-reduces of …

The name is the word between `question` and the title, and is the same in every language. A card
without a name gets its position among the page's cards. `number` says that the answer begins with a
bold number, with which the learner's answer is compared; both may have a unit.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from math import isclose
from pathlib import Path
from textwrap import dedent

import msgspec

from notelab.book.workbook import CheckSession
from notelab.errors import NotelabError
from notelab.lab import lock as lock_file
from notelab.lab import pages
from notelab.lab.lab import Lab
from notelab.lab.lock import Lock
from notelab.lab.pages import Page
from notelab.page import admonition, front_matter

_OPENING = re.compile(r'\?{3}\+? ?question((?: +[\w-]+)*) +"(.*)" *')
_BOLD = re.compile(r"\*\*(.+?)\*\*")
TOLERANCE = 0.01  # for bytes: distinguishes 16 GB from 16 GiB, and allows rounding
_QUANTITY = re.compile(r"(\d[\d\s_,.'’]*?(?:[eE][+-]?\d+)?)\s*([^\W\d_]+)?\.?")
_GROUPED = re.compile(r"\d{1,3}([,.])\d{3}(?:\1\d{3})*")
_BYTES = re.compile(r"(?:([kmgtp])(i?))?b(?:ytes?)?", re.IGNORECASE)


class Quantity(msgspec.Struct, frozen=True):
    """A number of bytes (unit "B"), or of what the unit says; "" if there is no unit."""

    value: float
    unit: str


def parse_quantity(text: str) -> Quantity | None:
    """Return the quantity that a text is, or None.

    >>> read = parse_quantity
    >>> read("16 GB") == read("16e9 B") == read("16 000 000 000 B") == read("16.000.000.000 bytes")
    True
    >>> read("1.5 KiB"), read("1,5 kib"), read("4 ranks"), read("1,024"), read("many")
    (Quantity(value=1536.0, unit='B'), Quantity(value=1536.0, unit='B'), \
Quantity(value=4.0, unit='ranks'), Quantity(value=1024.0, unit=''), None)
    """
    match = _QUANTITY.fullmatch(text.strip())
    value = _parse_value(match[1]) if match else None
    if not match or value is None:
        return None
    unit = match[2] or ""
    byte_unit = _BYTES.fullmatch(unit)
    if not byte_unit:
        return Quantity(value, unit)
    power = " kmgtp".index((byte_unit[1] or " ").lower())
    return Quantity(value * (1024 if byte_unit[2] else 1000) ** power, "B")


def _parse_value(digits: str) -> float | None:
    digits = re.sub(r"[\s_'’]", "", digits)
    if "," in digits and "." in digits:  # the last of the two is the decimal mark
        grouping = min(",.", key=digits.rindex)
        digits = digits.replace(grouping, "")
    # A single point is a decimal mark in both languages, as in the workbook's pages.
    elif _GROUPED.fullmatch(digits) and digits.count(".") != 1:
        digits = digits.replace(",", "").replace(".", "")
    try:
        return float(digits.replace(",", "."))
    except ValueError:
        return None


def lacks_unit(typed: Quantity, expected: Quantity) -> bool:
    """Return whether a typed number is neither right nor wrong, since it lacks its unit of bytes.

    >>> read = parse_quantity
    >>> lacks_unit(read("7"), read("7 MiB")), lacks_unit(read("7"), read("7 ranks"))
    (True, False)
    """
    return expected.unit == "B" and not typed.unit


def is_same(typed: Quantity, expected: Quantity) -> bool:
    """Return whether a typed quantity equals the expected one; a count may have any unit or none.

    >>> read = parse_quantity
    >>> is_same(read("17.18 GB"), read("16 GiB")), is_same(read("16 GB"), read("16 GiB"))
    (True, False)
    """
    if (typed.unit == "B") != (expected.unit == "B"):
        return False
    return isclose(typed.value, expected.value, rel_tol=TOLERANCE if expected.unit == "B" else 1e-9)


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
    number = parse_quantity(bold[1]) if bold else None
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
    page_view = pages.parse(page, bench.cache.file_for(lab.root))
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
