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
from pages.blocks import MEASURED, fill_blocks, in_language
from pages.faults.book import Row, copy_of_the_lab, plant
from pages.faults.mutations import plants

RECORD = MEASURED / "promise.json"
Measured = dict[str, dict[str, Row]]
HEADS = {
    "en": ("fault, in every citation", "planted", "lock in place", "made anew: notes", "reference"),
    "es": ("fallo, en cada cita", "plantados", "lock en su sitio", "rehecho: notas", "referencia"),
}
SPANISH = {
    "shifted by 1 to 4 lines": "desplazada de 1 a 4 líneas",
    "shifted by 5 to 50 lines": "desplazada de 5 a 50 líneas",
    "pointing at another function": "apunta a otra función",
    "pointing into another file": "apunta a otro archivo",
    "past the end of the file": "más allá del final del archivo",
    "reversed": "al revés",
    "straddling two functions": "a caballo entre dos funciones",
    "too wide": "demasiado ancha",
}


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
    lines = ["| " + " | ".join(HEADS[language]) + " |", "|---|--:|--:|--:|--:|"]
    for name, row in rows.items():
        rates = (row.with_lock.rate, row.relocked_in_notes.rate, row.relocked_in_reference.rate)
        rate_cells = " | ".join(f"{100 * rate:.1f} %" for rate in rates)
        label = SPANISH[name] if language == "es" else name
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
    for language in HEADS:
        path = in_language("docs/reference/promise", language)
        yield path, fill_blocks(path, {"faults": format_table(rows, language)})
