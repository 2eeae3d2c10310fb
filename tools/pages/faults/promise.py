"""The promise: which planted faults the checker catches, in per cent.

`--record` plants every fault in every citation of lab 03, in minutes, and stores what was caught in
docs/measured/promise.json. The pins are fixed and nothing is random, so the figures are the same on
every machine that has the sources.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from notelab.book.opening import open_session
from pages.blocks import LANGUAGES, MEASURED, fill_blocks, in_language, read_words
from pages.faults.planting import Row, copy_of_the_lab, plant, plants

RECORD = MEASURED / "promise.json"
Measured = dict[str, dict[str, Row]]
WORDS = read_words("promise")


def table(measured: Measured) -> dict[str, Row]:
    """Return the sums of what was measured for each kind."""
    rows = {kind: Row() for kind in measured}
    for kind, ways in measured.items():
        for row in ways.values():
            rows[kind].add(row)
    return rows


def load() -> Measured:
    """Return the last measurement, by kind and way."""
    return msgspec.json.decode(RECORD.read_bytes(), type=Measured)


def save(measured: Measured) -> None:
    """Store a measurement, one way per line, so that a change shows which way changed."""
    kinds = [
        f"  {json.dumps(kind)}: {{\n"
        + ",\n".join(
            f"    {json.dumps(way)}: {msgspec.json.encode(row).decode()}"
            for way, row in ways.items()
        )
        + "\n  }"
        for kind, ways in measured.items()
    ]
    RECORD.write_text("{\n" + ",\n".join(kinds) + "\n}\n", "utf-8")


def format_table(rows: dict[str, Row], language: str) -> str:
    """Return the table as the page shows it."""
    lines = ["| " + " | ".join(WORDS[language]["head"]) + " |", "|---|--:|--:|--:|--:|"]
    for name, row in rows.items():
        rates = (row.with_lock.rate, row.relocked_in_notes.rate, row.relocked_in_reference.rate)
        rate_cells = " | ".join(f"{100 * rate:.1f} %" for rate in rates)
        label = WORDS[language].get(name, name)
        # Spanish parts thousands with a space; a comma would be its decimal sign.
        planted = f"{row.with_lock.planted:,}".replace(",", "\u202f" if language == "es" else ",")
        lines.append(f"| {label} | {planted} | {rate_cells} |")
    return "\n".join(lines)


def record() -> None:
    """Plant every fault, and store what was caught."""
    with tempfile.TemporaryDirectory() as folder:
        book = copy_of_the_lab(Path(folder) / "book", open_session(()))
        save(
            {
                kind: {way: plant(book, *fault) for way, fault in ways.items()}
                for kind, ways in plants(book).items()
            }
        )


def render() -> Iterator[tuple[Path, str]]:
    """Yield the page in each language."""
    rows = table(load())
    for language in LANGUAGES:
        path = in_language("docs/reference/promise", language)
        yield path, fill_blocks(path, {"faults": format_table(rows, language)})
