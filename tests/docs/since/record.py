"""What a carried source leaves in docs/measured/since.json: places, classes, our own sentences.

    shardbook repin SOURCE REF --output-format json | python -m tests.docs.since.record SOURCE REF

It reads the lines at both commits: Megatron's in a clone (SHARDBOOK_MIRROR_MEGATRON), PyTorch's
in the two wheels.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

import msgspec

from notelab.book.finding_labs import default_labs
from notelab.book.opening import open_bench
from notelab.book.workbook import Workbook, open_labs
from notelab.cited.outline import split_lines
from notelab.repin.alarm import raise_alarm
from notelab.repin.carried import Carried, Kind, Place, Repin
from notelab.repin.reading import Lines, Reread
from notelab.repin.sentences import Sentence, about
from notelab.sources.answers import Found, Source
from notelab.sources.library import Library
from notelab.sources.package import built_from
from tests.docs.page import ROOT
from tests.docs.since.pages import DATA, Read, Said, Since, data

TITLES = {"megatron": "Megatron-LM", "pytorch": "PyTorch"}
KINDS = ("same", "moved", "reformatted", "edited", "gone")


def record(
    repin: Repin,
    reread: list[Reread],
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
                one.carried.old,
                one.carried.kind,
                one.why,
                one.names,
                round(one.share, 3),
                list({(said.page, said.text["en"]): said for said in told.of(one)}.values()),
                next(iter(one.carried.proposals), None) if one.carried.kind != "gone" else None,
            )
            for one in reread
        ],
    )


class _Translations:
    """The Spanish sentences, found by what they cite or name: translations keep both."""

    def __init__(self, books: Iterable[Workbook], source: str) -> None:
        self._known: dict[str, list[Sentence]] = {}
        for book in books:
            for one in about(book, source, "es"):
                self._known.setdefault(one.page, []).append(one)

    def of(self, reread: Reread) -> Iterator[Said]:
        for one in reread.sentences:
            there = self._known.get(f"{one.page.removesuffix('.md')}.es.md", [])
            same = [two for two in there if two.cited == one.cited and two.anchor == one.anchor]
            same = [two for two in same if set(two.names) == set(one.names)] or same
            near = [two for two in there if set(one.cited) & set(two.cited)]
            found = next(iter(same or near), None)
            text = {"en": one.text, "es": found.text if found else one.text}
            yield Said(one.page, text, one.anchor)


class _Line(msgspec.Struct, rename={"kind": "class"}):
    """A citation as `repin --output-format json` has it."""

    source: str
    path: str
    start: int
    end: int
    kind: Kind
    new: Place | None
    proposals: list[Place]
    pages: list[str]


class _Printed(msgspec.Struct):
    citations: list[_Line]


def main(name: str, ref: str) -> None:
    """Replace what is recorded of a source by what `repin` printed, read from standard input."""
    printed = msgspec.json.decode(sys.stdin.buffer.read(), type=_Printed)
    bench = open_bench((), anew=True)
    books = open_labs(dict.fromkeys(default_labs(ROOT)), bench)
    old = next(book for book in books if name in book.pins).evidence.source(name)
    new = _at(bench.library, old, ref)
    citations = [
        Carried(name, Place(one.path, one.start, one.end), one.kind, one.new, one.proposals)
        for one in printed.citations
    ]
    repin = Repin(name, old.commit, new.commit, citations)
    lines = _lines(bench.library, old), _lines(bench.library, new)
    reread, why = raise_alarm(repin, books, bench.library, (old, new), lines)
    if why:
        sys.exit(f"error: {why}")
    releases = old.release or "", ref
    made = record(repin, reread, books, title=TITLES[name], url=old.url, releases=releases)
    kept = [made if one.source == name else one for one in data()]
    DATA.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")


def _at(library: Library, old: Source, ref: str) -> Source:
    """Return a source at another release: as its clone says, or its wheel of that version."""
    if library.clone(old):
        commit, wheel = library.resolve(old, ref), None
    else:
        wheel = f"{(old.wheel or '').partition('==')[0]}=={ref.removeprefix('v')}"
        there = msgspec.structs.replace(old, wheel=wheel, known=None)
        commit = built_from(library.package(there).read("torch/version.py")) or ""
    return msgspec.structs.replace(old, commit=commit, release=ref, wheel=wheel, known=None)


def _lines(library: Library, source: Source) -> Lines:
    @cache
    def whole(path: str) -> list[str]:
        answer = library.read(source, {path: None})[path]
        if not isinstance(answer, Found):
            return []
        return [line.decode("utf-8", "replace") for line in split_lines(answer.data)]

    return lambda place: whole(place.path)[place.start - 1 : place.end]


if __name__ == "__main__":
    main(*sys.argv[1:])
