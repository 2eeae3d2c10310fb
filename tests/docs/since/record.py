"""What a carried source leaves in docs/measured/since.json: places, classes, our own sentences.

    python -m tests.docs.since.record SOURCE REF

It carries as `shardbook repin` does: Megatron needs a clone (SHARDBOOK_MIRROR_MEGATRON), PyTorch
its two wheels.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from notelab.book.finding_labs import lab_with
from notelab.book.opening import open_bench
from notelab.book.workbook import Workbook
from notelab.repin.changes import RepinResult
from notelab.repin.migrate import classify_citations, open_migration
from notelab.repin.review_order import ReviewItem, build_review
from notelab.repin.sentences import Sentence, find_sentences
from tests.docs.page import ROOT
from tests.docs.since.pages import DATA, Read, Said, Since, data

TITLES = {"megatron": "Megatron-LM", "pytorch": "PyTorch"}
KINDS = ("same", "moved", "reformatted", "edited", "gone")


def record(
    repin: RepinResult,
    reread: list[ReviewItem],
    books: Iterable[Workbook],
    *,
    title: str,
    url: str,
    releases: tuple[str, str],
) -> Since:
    """Return a carried source as the pages tell it."""
    told = _Translations(books, repin.source)
    counts = Counter(one.kind for one in repin.citations)
    return Since(
        repin.source,
        title,
        url,
        (repin.old_commit, repin.new_commit),
        releases,
        {kind: counts[kind] for kind in KINDS if counts[kind]},
        {one.name: one.change for one in repin.names},
        [
            Read(
                one.change.old,
                one.change.kind,
                one.reason,
                one.names,
                round(one.changed_share, 3),
                list({(said.page, said.text["en"]): said for said in told.of(one)}.values()),
                next(iter(one.change.proposals), None),
            )
            for one in reread
        ],
    )


class _Translations:
    """The Spanish sentences, found by what they cite or name: translations keep both."""

    def __init__(self, books: Iterable[Workbook], source: str) -> None:
        self._known: dict[str, list[Sentence]] = {}
        for book in books:
            for one in find_sentences(book, source, "es"):
                self._known.setdefault(one.page, []).append(one)

    def of(self, reread: ReviewItem) -> Iterator[Said]:
        for one in reread.sentences:
            there = self._known.get(f"{one.page.removesuffix('.md')}.es.md", [])
            same = [two for two in there if two.places == one.places and two.anchor == one.anchor]
            same = [two for two in same if set(two.names) == set(one.names)] or same
            near = [two for two in there if set(one.places) & set(two.places)]
            found = next(iter(same or near), None)
            text = {"en": one.text, "es": found.text if found else one.text}
            yield Said(one.page, text, one.anchor)


def main(name: str, ref: str) -> None:
    """Carry a source, and replace what is recorded of it."""
    bench = open_bench((), anew=True)
    folder = lab_with(name, None, ROOT)
    migration = open_migration(folder, name, ref, bench)
    repin = classify_citations(migration)
    reread, why = build_review(migration, repin, bench)
    if why:
        sys.exit(f"error: {why}")
    table = bench.lab(folder).sources[name]
    releases = table.release, ref
    made = record(
        repin, reread, migration.books, title=TITLES[name], url=table.url, releases=releases
    )
    kept = [made if one.source == name else one for one in data()]
    DATA.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
