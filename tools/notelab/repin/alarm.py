"""The alarm that a carried source raises: the names that changed, and what to read again."""

from collections.abc import Callable, Iterable

from notelab.book.workbook import Bench, Workbook
from notelab.repin.becoming import Version
from notelab.repin.carried import ChangedName, Place, Repin
from notelab.repin.carry import Journey
from notelab.repin.names import changed
from notelab.repin.reading import Lines, Reread, to_read_again
from notelab.repin.sentences import Sentence, about
from notelab.sources.answers import Source, SourceError

Both = tuple[Lines, Lines]


def for_journey(journey: Journey, repin: Repin, bench: Bench) -> tuple[list[Reread], Both, str]:
    """Raise the alarm of a carried source; return the list, the lines, and why no names."""
    sources = journey.books[0].evidence.source(repin.source), journey.ahead.source(repin.source)
    lines = _lines(journey.old), _lines(journey.new)
    reread, why = raise_alarm(repin, journey.books, bench, sources, lines)
    return reread, lines, why


def _lines(version: Callable[[str], Version | None]) -> Lines:
    def at(place: Place) -> list[str]:
        found = version(place.path)
        return found.lines[place.start - 1 : place.end] if found else []

    return at


def raise_alarm(
    repin: Repin,
    books: Iterable[Workbook],
    bench: Bench,
    sources: tuple[Source, Source],
    lines: Both,
) -> tuple[list[Reread], str]:
    """Set `names` of a carried source, `alarm` and `reason` of its citations.

    Args:
        repin: what became of each citation.
        books: the labs whose pages speak of the source.
        bench: where its trees are asked for.
        sources: it at the old commit and at the new one, each with its wheel where one is known.
        lines: reads the lines at a place, of the old commit and of the new one.

    Returns what to read again, first things first, and why the names could not be asked, or ''.
    """
    said = _sentences(books, repin.source)
    pages: dict[str, dict[str, None]] = {}
    for sentence in said:
        for name in sentence.names:
            pages.setdefault(name, {})[sentence.page] = None
    why = ""
    try:
        found = changed(bench, *sources, pages)
        repin.names = [
            *(ChangedName(name, "vanished", [*pages[name]]) for name in sorted(found.vanished)),
            *(ChangedName(name, "appeared", [*pages[name]]) for name in sorted(found.appeared)),
        ]
    except SourceError as fault:
        why = f"{fault}; {fault.hint}" if fault.hint else str(fault)
    return to_read_again(repin, said, *lines), why


def _sentences(books: Iterable[Workbook], source: str) -> list[Sentence]:
    """Return the sentences of the originals, once where several labs own the page."""
    return list(
        {
            (one.page, one.row, one.text, *one.names, *one.cited): one
            for book in books
            for one in about(book, source, book.lab.languages[0])
        }.values()
    )
