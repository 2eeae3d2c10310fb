"""Lists what must be read again after a source moved, in order: the most likely wrong first.

The first are sentences with a name that vanished from the whole tree or appeared in it, then
citations that are gone, then edited ones: those where a name of the sentence left the lines, those
where a name of its block left, and the rest by the share of changed lines.
"""

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from enum import IntEnum

import msgspec

from notelab.book.workbook import CheckSession, Workbook
from notelab.repin.changes import CitationChange, NameChange, Place, RepinResult
from notelab.repin.migrate import Migration
from notelab.repin.names import compare_names as changed_names
from notelab.repin.sentences import Sentence, find_sentences
from notelab.repin.version import Version
from notelab.sources.answers import SourceError

ReadLines = Callable[[Place], list[str]]
_TOKEN = re.compile(r"\w+|[^\w\s]")


class ReviewReason(IntEnum):
    """Why a citation must be read again, the strongest reason first."""

    NAME_CHANGED = 0
    GONE = 1
    UNREAD = 2
    NAME_LEFT = 3
    BLOCK_NAME_LEFT = 4
    CHANGED = 5


class ReviewItem(msgspec.Struct):
    """A citation to read again: the reason, the names concerned, and the sentences that cite it.

    `before` are its old lines and `after` the lines of `new_place`, which is where they are now or
    may be. `changed_share` is the share of words that differ, from 0 to 1.
    """

    change: CitationChange
    sentences: list[Sentence]
    reason: ReviewReason
    names: list[str]
    changed_share: float
    new_place: Place | None = None
    before: list[str] = []
    after: list[str] = []

    @property
    def claims(self) -> list[str]:
        """Return the claims for which the citation is evidence, which must be judged again."""
        return list(
            dict.fromkeys(sentence.anchor for sentence in self.sentences if sentence.anchor)
        )


def build_review(
    migration: Migration, result: RepinResult, bench: CheckSession
) -> tuple[list[ReviewItem], str]:
    """Return the review of a repin and why names could not be compared, or ''.

    Sets the `names` of the result, and the `alarm` and `reason` of its citations.
    """
    sentences = _collect_sentences(migration.books, result.source)
    pages: dict[str, dict[str, None]] = {}
    for sentence in sentences:
        for name in sentence.names:
            pages.setdefault(name, {})[sentence.page] = None
    no_names_reason = ""
    sources = migration.old.source(result.source), migration.new.source(result.source)
    try:
        names = changed_names(bench, *sources, pages)
        result.names = [
            *(NameChange(name, "vanished", [*pages[name]]) for name in sorted(names.vanished)),
            *(NameChange(name, "appeared", [*pages[name]]) for name in sorted(names.appeared)),
        ]
    except SourceError as fault:
        no_names_reason = f"{fault}; {fault.hint}" if fault.hint else str(fault)
    old_lines, new_lines = (
        _line_reader(migration.old_version),
        _line_reader(lambda place: migration.new_version(place.path)),
    )
    return order_review(result, sentences, old_lines, new_lines), no_names_reason


def _line_reader(version: Callable[[Place], Version | None]) -> ReadLines:
    def read_lines(place: Place) -> list[str]:
        file = version(place)
        return file.lines[place.start - 1 : place.end] if file else []

    return read_lines


def _collect_sentences(books: Iterable[Workbook], source: str) -> list[Sentence]:
    """Return the sentences of the original pages; a page of several labs counts once."""
    return list(
        {
            (
                sentence.page,
                sentence.row,
                sentence.text,
                *sentence.names,
                *sentence.places,
            ): sentence
            for book in books
            for sentence in find_sentences(book, source, book.lab.languages[0])
        }.values()
    )


def order_review(
    result: RepinResult, sentences: Iterable[Sentence], old: ReadLines, new: ReadLines
) -> list[ReviewItem]:
    """Return what must be read again, in order; set `alarm` and `reason` of each citation."""
    sentences_by_place: dict[Place, list[Sentence]] = {}
    for sentence in sentences:
        for place in dict.fromkeys(sentence.places or sentence.block_places):
            sentences_by_place.setdefault(place, []).append(sentence)
    name_changes = {change.name: change for change in result.names}
    items = [
        item
        for change in result.citations
        if (
            item := _review_item(
                change, sentences_by_place.get(change.old, []), name_changes, old, new
            )
        )
    ]
    items.sort(
        key=lambda change: (
            change.reason,
            -change.changed_share,
            change.change.old.path,
            change.change.old.start,
        )
    )
    for rank, change in enumerate(items, start=1):
        change.change.alarm, change.change.reason = rank, _describe_reason(change, name_changes)
    return items


def _review_item(
    change: CitationChange,
    sentences: list[Sentence],
    name_changes: dict[str, NameChange],
    old: ReadLines,
    new: ReadLines,
) -> ReviewItem | None:
    changed_names = [
        name for sentence in sentences for name in sentence.names if name in name_changes
    ]
    citing = [sentence for sentence in sentences if change.old in sentence.places]
    if changed_names:
        sentences = [
            sentence
            for sentence in sentences
            if sentence in citing or set(sentence.names) & set(changed_names)
        ]
    sentences = list(
        {
            (sentence.page, sentence.row, sentence.text): sentence
            for sentence in (sentences if changed_names else citing)
        }.values()
    )
    if change.kind in ("same", "moved", "reformatted") and not changed_names:
        return None
    new_place = change.new or next(iter(change.proposals), None)
    before, after = old(change.old), new(new_place) if new_place else []
    words_before, words_after = _tokenize(before), _tokenize(after)
    left_names = set(words_before) - set(words_after)
    sentence_names = [name for sentence in citing for name in sentence.names if name in left_names]
    block_names_left = [
        name for sentence in citing for name in sentence.block_names if name in left_names
    ]
    if changed_names:
        reason, names = ReviewReason.NAME_CHANGED, changed_names
    elif change.kind == "gone":
        reason, names = ReviewReason.GONE, sentence_names
    elif not before:
        reason, names = ReviewReason.UNREAD, []
    else:
        reason = (
            ReviewReason.NAME_LEFT
            if sentence_names
            else ReviewReason.BLOCK_NAME_LEFT
            if block_names_left
            else ReviewReason.CHANGED
        )
        names = sentence_names or block_names_left
    changed_share = 1 - SequenceMatcher(None, words_before, words_after, autojunk=False).ratio()
    return ReviewItem(
        change,
        sentences,
        reason,
        list(dict.fromkeys(names)),
        changed_share,
        new_place,
        before,
        after,
    )


def _describe_reason(item: ReviewItem, name_changes: dict[str, NameChange]) -> str:
    """Return the reason of an item as text."""
    names = ", ".join(f"`{name}`" for name in item.names)
    match item.reason:
        case ReviewReason.NAME_CHANGED:
            vanished = [
                f"`{name}`" for name in item.names if name_changes[name].change == "vanished"
            ]
            appeared = [
                f"`{name}`" for name in item.names if name_changes[name].change == "appeared"
            ]
            parts = [f"{', '.join(vanished)} vanished from the whole tree"] if vanished else []
            parts += (
                [f"{', '.join(appeared)} appeared; the old tree doesn't have them"]
                if appeared
                else []
            )
            return "; ".join(parts)
        case ReviewReason.GONE:
            return "the lines are gone" + (f", and with them {names}" if names else "")
        case ReviewReason.UNREAD:
            return item.change.reason
        case ReviewReason.NAME_LEFT:
            return f"{names} left the lines that the sentence cites"
        case ReviewReason.BLOCK_NAME_LEFT:
            return f"{names}, which the text around it names, left the lines"
        case ReviewReason.CHANGED:
            share_text = (
                f"{round(100 * item.changed_share)} % of the lines changed, and no name left them"
            )
            context_text = "the same words, under another condition or in another function"
            return share_text if item.changed_share else context_text


def _tokenize(lines: list[str]) -> list[str]:
    return _TOKEN.findall("\n".join(lines))
