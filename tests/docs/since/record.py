"""Records a carried source in docs/measured/since.json: places, classes, our own sentences.

    python -m tests.docs.since.record SOURCE REF

It carries as `shardbook repin` does: Megatron needs a clone (SHARDBOOK_MIRROR_MEGATRON), PyTorch
its two wheels.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from notelab.book.discovery import find_lab
from notelab.book.opening import open_session
from notelab.book.workbook import Workbook
from notelab.repin.changes import RepinResult
from notelab.repin.migrate import classify_citations, open_migration
from notelab.repin.review_order import ReviewItem, build_review
from notelab.repin.sentences import Sentence, find_sentences
from tests.docs.page import ROOT
from tests.docs.since.pages import DATA, Quote, ReviewedCitation, Since, load_data

TITLES = {"megatron": "Megatron-LM", "pytorch": "PyTorch"}
KINDS = ("same", "moved", "reformatted", "edited", "gone")


def make_record(
    repin: RepinResult,
    reread: list[ReviewItem],
    books: Iterable[Workbook],
    *,
    title: str,
    url: str,
    releases: tuple[str, str],
) -> Since:
    """Return the record of a carried source, from which the pages are rendered."""
    translations = _Translations(books, repin.source)
    counts = Counter(citation.kind for citation in repin.citations)
    return Since(
        repin.source,
        title,
        url,
        (repin.old_commit, repin.new_commit),
        releases,
        {kind: counts[kind] for kind in KINDS if counts[kind]},
        {name.name: name.change for name in repin.names},
        [
            ReviewedCitation(
                item.change.old,
                item.change.kind,
                item.reason,
                item.names,
                round(item.changed_share, 3),
                list({(q.page, q.text["en"]): q for q in translations.find_quotes(item)}.values()),
                next(iter(item.change.proposals), None),
            )
            for item in reread
        ],
    )


class _Translations:
    """Finds the Spanish translation of a sentence by its citations and names."""

    def __init__(self, books: Iterable[Workbook], source: str) -> None:
        self._by_page: dict[str, list[Sentence]] = {}
        for book in books:
            for sentence in find_sentences(book, source, "es"):
                self._by_page.setdefault(sentence.page, []).append(sentence)

    def find_quotes(self, item: ReviewItem) -> Iterator[Quote]:
        """Yield the sentences of an item, each with its translation."""
        for sentence in item.sentences:
            page = f"{sentence.page.removesuffix('.md')}.es.md"
            candidates = self._by_page.get(page, [])
            same = [
                c for c in candidates
                if c.places == sentence.places and c.anchor == sentence.anchor
            ]  # fmt: skip
            same = [c for c in same if set(c.names) == set(sentence.names)] or same
            overlapping = [c for c in candidates if set(sentence.places) & set(c.places)]
            translation = next(iter(same or overlapping), None)
            text = {"en": sentence.text, "es": translation.text if translation else sentence.text}
            yield Quote(sentence.page, text, sentence.anchor)


def main(name: str, ref: str) -> None:
    """Carry a source, and replace its record."""
    bench = open_session((), refresh=True)
    folder = find_lab(name, None, ROOT)
    migration = open_migration(folder, name, ref, bench)
    repin = classify_citations(migration)
    reread, why = build_review(migration, repin, bench)
    if why:
        sys.exit(f"error: {why}")
    table = bench.lab(folder).sources[name]
    releases = table.release, ref
    recorded = make_record(
        repin, reread, migration.books, title=TITLES[name], url=table.url, releases=releases
    )
    records = [recorded if record.source == name else record for record in load_data()]
    DATA.write_bytes(msgspec.json.format(msgspec.json.encode(records), indent=1) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
