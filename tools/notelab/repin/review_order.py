"""Lists what must be read again after a source moved, in order: the most likely wrong first.

The first are sentences with a name that vanished from the whole tree or appeared in it, then
citations that are gone, then edited ones: those where a name of the sentence left the lines, those
where a name of its block left, and the rest by the share of changed lines. A terminal shows a
sentence, the reason, and old and new lines side by side.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher
from enum import IntEnum
from itertools import zip_longest
from textwrap import dedent, wrap

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
        return list(dict.fromkeys(s.anchor for s in self.sentences if s.anchor))


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
    old_lines = _line_reader(migration.old_version)
    new_lines = _line_reader(lambda place: migration.new_version(place.path))
    return order_review(result, sentences, old_lines, new_lines), no_names_reason


def _line_reader(version: Callable[[Place], Version | None]) -> ReadLines:
    def read_lines(place: Place) -> list[str]:
        file = version(place)
        return file.lines[place.start - 1 : place.end] if file else []

    return read_lines


def _collect_sentences(books: Iterable[Workbook], source: str) -> list[Sentence]:
    """Return the sentences of the original pages; a page of several labs counts once."""
    sentences = (
        sentence
        for book in books
        for sentence in find_sentences(book, source, book.lab.languages[0])
    )
    return list({(s.page, s.row, s.text, *s.names, *s.places): s for s in sentences}.values())


def order_review(
    result: RepinResult, sentences: Iterable[Sentence], old: ReadLines, new: ReadLines
) -> list[ReviewItem]:
    """Return what must be read again, in order; set `alarm` and `reason` of each citation."""
    sentences_by_place: dict[Place, list[Sentence]] = {}
    for sentence in sentences:
        for place in dict.fromkeys(sentence.places or sentence.block_places):
            sentences_by_place.setdefault(place, []).append(sentence)
    name_changes = {change.name: change for change in result.names}
    items = []
    for change in result.citations:
        about = sentences_by_place.get(change.old, [])
        if item := _review_item(change, about, name_changes, old, new):
            items.append(item)
    items.sort(key=lambda item: (item.reason, -item.changed_share, item.change.old))
    for rank, item in enumerate(items, start=1):
        item.change.alarm, item.change.reason = rank, _describe_reason(item, name_changes)
    return items


def _review_item(
    change: CitationChange,
    sentences: list[Sentence],
    name_changes: dict[str, NameChange],
    old: ReadLines,
    new: ReadLines,
) -> ReviewItem | None:
    changed_names = [name for s in sentences for name in s.names if name in name_changes]
    if change.kind in ("same", "moved", "reformatted") and not changed_names:
        return None
    citing = [sentence for sentence in sentences if change.old in sentence.places]
    shown = [s for s in sentences if s in citing or not name_changes.keys().isdisjoint(s.names)]
    new_place = change.new or next(iter(change.proposals), None)
    before, after = old(change.old), new(new_place) if new_place else []
    words_before, words_after = _tokenize(before), _tokenize(after)
    left = set(words_before) - set(words_after)
    names_left = [name for s in citing for name in s.names if name in left]
    block_names_left = [name for s in citing for name in s.block_names if name in left]
    if changed_names:
        reason, names = ReviewReason.NAME_CHANGED, changed_names
    elif change.kind == "gone":
        reason, names = ReviewReason.GONE, names_left
    elif not before:
        reason, names = ReviewReason.UNREAD, []
    elif names_left:
        reason, names = ReviewReason.NAME_LEFT, names_left
    elif block_names_left:
        reason, names = ReviewReason.BLOCK_NAME_LEFT, block_names_left
    else:
        reason, names = ReviewReason.CHANGED, []
    return ReviewItem(
        change,
        list({(s.page, s.row, s.text): s for s in shown}.values()),
        reason,
        list(dict.fromkeys(names)),
        1 - SequenceMatcher(None, words_before, words_after, autojunk=False).ratio(),
        new_place,
        before,
        after,
    )


def _describe_reason(item: ReviewItem, name_changes: dict[str, NameChange]) -> str:
    """Return the reason of an item as text."""

    def list_names(change: str = "") -> str:
        names = (name for name in item.names if not change or name_changes[name].change == change)
        return ", ".join(f"`{name}`" for name in names)

    match item.reason:
        case ReviewReason.NAME_CHANGED:
            vanished, appeared = list_names("vanished"), list_names("appeared")
            parts = [f"{vanished} vanished from the whole tree"] if vanished else []
            parts += [f"{appeared} appeared; the old tree doesn't have them"] if appeared else []
            return "; ".join(parts)
        case ReviewReason.GONE:
            names = f", and with them {list_names()}" if item.names else ""
            searched = f"; {item.change.searched}" if item.change.searched else ""
            return f"the lines are gone{names}{searched}"
        case ReviewReason.UNREAD:
            return item.change.reason
        case ReviewReason.NAME_LEFT:
            return f"{list_names()} left the lines that the sentence cites"
        case ReviewReason.BLOCK_NAME_LEFT:
            return f"{list_names()}, which the text around it names, left the lines"
        case ReviewReason.CHANGED:
            share = (
                f"{round(100 * item.changed_share)} % of the lines changed, and no name left them"
            )
            same = "the same words, under another condition or in another function"
            return share if item.changed_share else same


def _tokenize(lines: list[str]) -> list[str]:
    return _TOKEN.findall("\n".join(lines))


_WIDTH = 80
_COLUMN_WIDTH = (_WIDTH - 3) // 2
_MAX_ROWS = 24  # rows of two texts side by side


def render(items: Iterable[ReviewItem]) -> Iterator[str]:
    """Yield the lines of the review in order; items without a changed name take a line each."""
    items = list(items)
    for item in items:
        if item.reason is not ReviewReason.CHANGED:
            yield from _render_item(item)
    changed_only = [item for item in items if item.reason is ReviewReason.CHANGED]
    if changed_only:
        yield f"{len(changed_only)} more, whose names are all still there:"
    for item in changed_only:
        positions = ", ".join(
            dict.fromkeys(f"{sentence.page}:{sentence.row}" for sentence in item.sentences)
        )
        yield from _wrap(f"{item.change.alarm}. {item.change.old} ({positions})")
    if claims := dict.fromkeys(name for item in items for name in item.claims):
        yield ""
        yield from _wrap("to judge again: " + ", ".join(claims))


def _render_item(item: ReviewItem) -> Iterator[str]:
    change = item.change
    arrow = f" -> {item.new_place}" if item.new_place else ""
    yield from _wrap(f"{change.alarm}. {change.old}{arrow}")
    yield from _wrap(f"{change.kind}: {change.reason}", "   ", "   ")
    for sentence in item.sentences:
        yield f"   {sentence.page}:{sentence.row}"
        yield from _wrap(sentence.text, "   > ", "   > ")
    yield from format_side_by_side(item.before, item.after)
    yield ""


def _wrap(text: str, first: str = "", rest: str = "   ") -> list[str]:
    # A citation is copied, so one that is wider than a line stays whole.
    return wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def format_side_by_side(before: list[str], after: list[str]) -> list[str]:
    """Return two texts in two columns: the differences with a line around each.

    A text without a counterpart gets the whole width.
    """
    before, after = (
        dedent("\n".join(lines)).split("\n") if lines else [] for lines in (before, after)
    )
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    rows = [
        (old_line, " " if tag == "equal" else "|", new_line)
        for group in matcher.get_grouped_opcodes(1)
        for tag, i1, i2, j1, j2 in group
        for old_line, new_line in zip_longest(before[i1:i2], after[j1:j2], fillvalue="")
    ]
    width = _COLUMN_WIDTH if after else _WIDTH - 2
    lines = [
        f"{_fit_width(old_line, width)} {mark} {_fit_width(new_line, width)}".rstrip()
        for old_line, mark, new_line in rows[:_MAX_ROWS]
    ]
    hidden_rows = len(rows) - _MAX_ROWS
    return [*lines, f"… {hidden_rows} more lines"] if hidden_rows > 0 else lines


def _fit_width(line: str, width: int) -> str:
    line = line.expandtabs(4)
    return f"{line[: width - 1]}…" if len(line) > width else line.ljust(width)
