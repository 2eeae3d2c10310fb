"""Records a carried source in docs/measured/since.json: places, classes, our own sentences.

Megatron is carried with a clone (SHARDBOOK_MIRROR_MEGATRON), PyTorch with its two wheels. Without a
release the record keeps what it says of the citations, and only quotes the pages' sentences again;
citations that the pages got since then are missing from it. The record has no source text in it.
docs/measured/since-judged.toml says what was judged by reading, and how.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from notelab.book.discovery import find_lab, labs_below
from notelab.book.opening import open_session
from notelab.book.workbook import Workbook, open_labs
from notelab.repin.changes import Kind, Place, RepinResult
from notelab.repin.migrate import classify_citations, open_migration
from notelab.repin.review_order import ReviewItem, ReviewReason, build_review
from notelab.repin.sentences import Sentence, find_sentences
from pages.blocks import MEASURED, ROOT, PageError

DATA = MEASURED / "since.json"
JUDGED = MEASURED / "since-judged.toml"


class Quote(msgspec.Struct, frozen=True):
    """A sentence of a page, in each language."""

    page: str
    text: dict[str, str]
    anchor: str = ""


class ReviewedCitation(msgspec.Struct, frozen=True):
    """A citation to review, in the order of the list."""

    old: Place
    kind: Kind
    why: ReviewReason
    names: list[str]
    share: float
    quotes: list[Quote] = msgspec.field(name="said")  # the stored name
    new: Place | None = None


class Since(msgspec.Struct, frozen=True):
    """A source since its pin; `changed` holds the names that vanished or appeared."""

    source: str
    title: str
    url: str
    commits: tuple[str, str]
    releases: tuple[str, str]
    kinds: dict[Kind, int]
    changed: dict[str, Literal["vanished", "appeared"]]
    reread: list[ReviewedCitation]


def load_data() -> list[Since]:
    """Return the sources as they were last carried."""
    return msgspec.json.decode(DATA.read_bytes(), type=list[Since])


class Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A citation, the pages whose sentences rest on it, and whether these still hold.

    `says` is a part of the sentence that is meant, where a page has several that cite the lines.
    """

    source: str
    cited: str
    pages: list[str]
    verdict: Literal["true", "partly", "false"]
    why: dict[str, str]
    says: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    judged: list[Judged]


def load_judged() -> list[Judged]:
    """Return every judgement."""
    return msgspec.toml.decode(JUDGED.read_bytes(), type=_File).judged


TITLES = {"megatron": "Megatron-LM", "pytorch": "PyTorch"}
KINDS: tuple[Kind, ...] = ("same", "moved", "reformatted", "edited", "gone")


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
                translations.quote(item.sentences),
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

    def quote(self, sentences: Iterable[Sentence]) -> list[Quote]:
        """Return the sentences, each once, with its translation."""
        return list({(q.page, q.text["en"]): q for q in self._find_quotes(sentences)}.values())

    def _find_quotes(self, sentences: Iterable[Sentence]) -> Iterator[Quote]:
        for sentence in sentences:
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


def requote(record: Since, books: list[Workbook]) -> Since:
    """Return a record with the sentences that the pages hold now; drop what no page cites."""
    translations = _Translations(books, record.source)
    sentences = [
        sentence
        for book in books
        for sentence in find_sentences(book, record.source, book.lab.languages[0])
    ]
    items = []
    for item in record.reread:
        citing = [
            sentence
            for sentence in sentences
            if item.old in sentence.places
            or (
                item.why is ReviewReason.NAME_CHANGED
                and item.old in sentence.block_places
                and not sentence.places
                and set(sentence.names) & set(item.names)
            )
        ]
        if citing:
            quotes = translations.quote(citing)
            items.append(msgspec.structs.replace(item, quotes=quotes))
    return msgspec.structs.replace(record, reread=items)


def requote_source(name: str) -> None:
    """Quote the pages' sentences about a source again."""
    _demand_source(name)
    books = open_labs(dict.fromkeys(labs_below(ROOT)), open_session((), refresh=True))
    _write([requote(r, books) if r.source == name else r for r in load_data()])


def carry(name: str, ref: str) -> None:
    """Carry the citations of a source to a release, and replace its record."""
    _demand_source(name)
    session = open_session((), refresh=True)
    folder = find_lab(name, None, ROOT)
    migration = open_migration(folder, name, ref, session)
    repin = classify_citations(migration)
    reread, why = build_review(migration, repin, session)
    if why:
        raise PageError(why)
    source = session.lab(folder).sources[name]
    recorded = make_record(
        repin, reread, migration.books,
        title=TITLES[name], url=source.url, releases=(source.release, ref),
    )  # fmt: skip
    _write([recorded if record.source == name else record for record in load_data()])


def _demand_source(name: str) -> None:
    if name not in TITLES:
        raise PageError(f"no source {name!r}: choose {' or '.join(TITLES)}")


def _write(records: list[Since]) -> None:
    DATA.write_bytes(msgspec.json.format(msgspec.json.encode(records), indent=1) + b"\n")
