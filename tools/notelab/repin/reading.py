"""What to read again after a source moved, and in which order: what is likeliest false comes first.

First sentences that name what vanished from the whole tree or appeared in it; then what is gone;
then what was edited, where names that the sentence says have left the lines, names that its choice
says, and the rest by how much of the lines changed.
"""

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from enum import IntEnum

import msgspec

from notelab.book.workbook import CheckSession, Workbook
from notelab.repin.carried import Carried, ChangedName, Place, Repin
from notelab.repin.carry import Journey
from notelab.repin.names import changed as changed_names
from notelab.repin.sentences import Sentence, about
from notelab.repin.version import Version
from notelab.sources.answers import SourceError

Lines = Callable[[Place], list[str]]
_TOKEN = re.compile(r"\w+|[^\w\s]")


class Why(IntEnum):
    """Why a citation is to be read again, the most telling first."""

    NAMED = 0
    GONE = 1
    UNREAD = 2
    LEFT = 3
    LEFT_AROUND = 4
    CHANGED = 5


class Reread(msgspec.Struct):
    """A citation to read again: why, by which names, and the sentences that hang on it.

    `before` and `after` are its lines where it stood, and `there`, where they now stand or may.
    `share` is how much of them differs, from 0 to 1.
    """

    carried: Carried
    sentences: list[Sentence]
    why: Why
    names: list[str]
    share: float
    there: Place | None = None
    before: list[str] = []
    after: list[str] = []

    @property
    def claims(self) -> list[str]:
        """Return the claims of which it is evidence: they are to be judged again."""
        return list(dict.fromkeys(one.anchor for one in self.sentences if one.anchor))


def raise_alarm(journey: Journey, repin: Repin, bench: CheckSession) -> tuple[list[Reread], str]:
    """Set `names` of a carried source, `alarm` and `reason` of its citations.

    Returns what to read again, first things first, and why the names could not be asked, or ''.
    """
    said = _sentences(journey.books, repin.source)
    pages: dict[str, dict[str, None]] = {}
    for sentence in said:
        for name in sentence.names:
            pages.setdefault(name, {})[sentence.page] = None
    why = ""
    sources = journey.began.source(repin.source), journey.ahead.source(repin.source)
    try:
        found = changed_names(bench, *sources, pages)
        repin.names = [
            *(ChangedName(name, "vanished", [*pages[name]]) for name in sorted(found.vanished)),
            *(ChangedName(name, "appeared", [*pages[name]]) for name in sorted(found.appeared)),
        ]
    except SourceError as fault:
        why = f"{fault}; {fault.hint}" if fault.hint else str(fault)
    old, new = _lines(journey.old), _lines(lambda place: journey.new(place.path))
    return to_read_again(repin, said, old, new), why


def _lines(version: Callable[[Place], Version | None]) -> Lines:
    def at(place: Place) -> list[str]:
        found = version(place)
        return found.lines[place.start - 1 : place.end] if found else []

    return at


def _sentences(books: Iterable[Workbook], source: str) -> list[Sentence]:
    """Return the sentences of the originals, once where several labs own the page."""
    return list(
        {
            (one.page, one.row, one.text, *one.names, *one.cited): one
            for book in books
            for one in about(book, source, book.lab.languages[0])
        }.values()
    )


def to_read_again(
    repin: Repin, sentences: Iterable[Sentence], old: Lines, new: Lines
) -> list[Reread]:
    """Return what must be read again, first things first, and set `alarm` and `reason` of each."""
    said: dict[Place, list[Sentence]] = {}
    for sentence in sentences:
        for place in dict.fromkeys(sentence.cited or sentence.beside):
            said.setdefault(place, []).append(sentence)
    changed = {one.name: one for one in repin.names}
    found = [
        made
        for one in repin.citations
        if (made := _reread(one, said.get(one.old, []), changed, old, new))
    ]
    found.sort(key=lambda one: (one.why, -one.share, one.carried.old.path, one.carried.old.start))
    for rank, one in enumerate(found, start=1):
        one.carried.alarm, one.carried.reason = rank, _in_words(one, changed)
    return found


def _reread(
    carried: Carried,
    said: list[Sentence],
    changed: dict[str, ChangedName],
    old: Lines,
    new: Lines,
) -> Reread | None:
    named = [name for one in said for name in one.names if name in changed]
    own = [one for one in said if carried.old in one.cited]
    if named:
        said = [one for one in said if one in own or set(one.names) & set(named)]
    said = list({(one.page, one.row, one.text): one for one in (said if named else own)}.values())
    if carried.kind in ("same", "moved", "reformatted") and not named:
        return None
    there = carried.new or next(iter(carried.proposals), None)
    before, after = old(carried.old), new(there) if there else []
    was, now = _words(before), _words(after)
    left = set(was) - set(now)
    spoken = [name for one in own for name in one.names if name in left]
    around = [name for one in own for name in one.around if name in left]
    if named:
        why, names = Why.NAMED, named
    elif carried.kind == "gone":
        why, names = Why.GONE, spoken
    elif not before:
        why, names = Why.UNREAD, []
    else:
        why = Why.LEFT if spoken else Why.LEFT_AROUND if around else Why.CHANGED
        names = spoken or around
    share = 1 - SequenceMatcher(None, was, now, autojunk=False).ratio()
    return Reread(carried, said, why, list(dict.fromkeys(names)), share, there, before, after)


def _in_words(one: Reread, changed: dict[str, ChangedName]) -> str:
    """Return the reason why it is to be read again."""
    names = ", ".join(f"`{name}`" for name in one.names)
    match one.why:
        case Why.NAMED:
            gone = [f"`{name}`" for name in one.names if changed[name].change == "vanished"]
            come = [f"`{name}`" for name in one.names if changed[name].change == "appeared"]
            parts = [f"{', '.join(gone)} vanished from the whole tree"] if gone else []
            parts += [f"{', '.join(come)} appeared, where the old tree has none"] if come else []
            return "; ".join(parts)
        case Why.GONE:
            return "the lines are gone" + (f", and with them {names}" if names else "")
        case Why.UNREAD:
            return one.carried.reason
        case Why.LEFT:
            return f"{names} left the lines that the sentence cites"
        case Why.LEFT_AROUND:
            return f"{names}, which the text around it names, left the lines"
        case Why.CHANGED:
            changes = f"{round(100 * one.share)} % of the lines changed, and no name left them"
            elsewhere = "the same words, under another condition or in another function"
            return changes if one.share else elsewhere


def _words(lines: list[str]) -> list[str]:
    return _TOKEN.findall("\n".join(lines))
