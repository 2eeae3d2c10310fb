"""Judges one citation: what its lines said when it was written, and where that is now."""

from collections.abc import Iterator
from heapq import nsmallest
from typing import Literal

import msgspec

from notelab.audit.alternatives import find_definition, find_whole, place_at
from notelab.audit.mentions import (
    BESIDE,
    COMMENT,
    Fit,
    Mention,
    find_definitions,
    fold_name,
    is_impl,
    measure_fit,
    names_enclosing,
)
from notelab.audit.repository import Repository
from notelab.repin.changes import CitationChange, Place
from notelab.repin.version import CitedLines, Version, base_name

State = Literal["right", "moved", "changed", "gone", "unknown"]
_FITS = 0.3  # the share of a fit from which the lines are taken to be those that the text means
_CLEARLY = 0.6  # and from which a carried citation may be written
_NEAR = 0.8  # the weight from which a name is next to the citation
_MAX_ROWS = 20  # of a name's that are compared, the nearest
_SLIP = 15  # lines by which a number may miss the definition of what the text names
_BESIDE, _IN_FRONT = 2, 0.7  # and by which it may miss a use of a name in front of it


class Verdict(msgspec.Struct):
    """What became of a citation; `certain` says that the first proposal may be written."""

    state: State
    proposals: list[Place] = []
    certain: bool = False
    reason: str = ""
    dated: str | None = None


class _Carried(msgspec.Struct):
    """A citation as it was at a commit, how well it fitted the text, and its place now."""

    commit: str
    old: Version
    fit: Fit
    change: CitationChange
    is_dated: bool  # read at one of its dates, not at an older commit that merely fits


def judge(
    repository: Repository,
    place: Place,
    old_path: str,
    dates: list[str],
    mentions: list[Mention],
    *,
    trusted: bool = False,
) -> Verdict:
    """Return the verdict on a citation.

    Args:
        repository: the repository of the code.
        place: the cited lines, with the path that the file has now, or had last.
        old_path: the path that the file had when the citation was written.
        dates: the commits at which the citation may have been read, the likeliest first.
        mentions: the names around it.
        trusted: whether the other citations of the same commit had the names around them.
    """
    new = _find_version(repository, place.path, dates)
    carried = _carry_from_dates(repository, place, old_path, dates, mentions)
    if carried is None:
        return _judge_by_names(new, place, mentions, dates, [])
    expected = [carried.change.new] if carried.change.new else carried.change.proposals[:1]
    if beside := _find_beside(carried, place, mentions):
        change = repository.classify(
            CitedLines(carried.old, beside, beside, []), new, carried.commit
        )
        if places := [change.new] if change.new else change.proposals[:1]:
            reason = "a line beside it has a name that the text gives in front of the number"
            state: State = "right" if places[0] == place else "moved"
            return Verdict(state, [*places, *expected], False, reason, carried.commit)
    if carried.fit.share >= _FITS or not mentions:
        return _judge_carried(carried, place, mentions, new)
    named = _judge_by_names(new, place, mentions, dates, expected)
    named.dated = carried.commit
    line = carried.old.lines[place.start - 1]
    is_kept = trusted and carried.is_dated and not COMMENT.match(line)
    is_named = any(mention.weight >= BESIDE and not mention.rival for mention in mentions)
    if is_kept or (carried.change.new and line.strip() and not is_named):
        verdict = _judge_carried(carried, place, [], new)
        if verdict.state != "gone":
            verdict.proposals[1:1] = named.proposals[:1]
            return verdict
    if named.state in ("right", "moved"):
        named.proposals = [*named.proposals[:1], *expected]
        return named
    verdict = _judge_carried(carried, place, mentions, new)
    verdict.certain = False
    return verdict


def fits_at(repository: Repository, place: Place, commit: str, mentions: list[Mention]) -> bool:
    """Return whether lines had the names around them when a commit wrote a citation."""
    versions = (repository.version(place.path, ref) for ref in (commit, f"{commit}^"))
    return any(
        measure_fit(old, place.start, place.end, mentions).share >= _FITS
        for old in versions
        if old and 0 < place.start <= place.end <= len(old.lines)
    )


def _carry_from_dates(
    repository: Repository, place: Place, old_path: str, dates: list[str], mentions: list[Mention]
) -> _Carried | None:
    """Return the citation carried from the date whose text fits best, if its lines exist there."""
    new = _find_version(repository, place.path, dates)
    best: tuple[float, str, Version, Fit] | None = None
    seen: set[str] = set()
    old_place = Place(old_path, place.start, place.end)
    for commit in _commits_to_try(repository, old_place, dates, mentions):
        is_dated = commit.rstrip("^") in dates
        if best and best[0] >= (_CLEARLY if mentions and is_dated else _FITS if mentions else 0):
            break
        old = repository.version(old_path, commit)
        if old is None or old.blob in seen or place.end > len(old.lines):
            continue
        seen.add(old.blob)
        fit = measure_fit(old, place.start, place.end, mentions)
        if best is None or fit.share > best[0] + 0.05:
            best = fit.share, commit, old, fit
    if best is None:
        return None
    _, commit, old, fit = best
    names = old.outline.names_between(place.start, place.end)
    anchors = sorted({mention.name for mention in mentions} & names)
    change = repository.classify(CitedLines(old, place.start, place.end, anchors), new, commit)
    return _Carried(commit.rstrip("^"), old, fit, change, commit.rstrip("^") in dates)


def _find_version(repository: Repository, path: str, dates: list[str]) -> Version | None:
    """Return a file at the commit of the code, where it may have another name."""
    renamed = (repository.find_renamed(path, date) for date in dates)
    return repository.version(path) or next(filter(None, renamed), None)


def _commits_to_try(
    repository: Repository, place: Place, dates: list[str], mentions: list[Mention]
) -> Iterator[str]:
    """Yield the commits at which a citation may have been read, the likeliest first.

    After its dates and their parents, these are older ones at which the lines have a near name:
    a document is often written before the last changes of its code, and committed after them.
    """
    yield from dates
    yield from (f"{date}^" for date in dates)
    near_names = frozenset(mention.name for mention in mentions if mention.weight >= _NEAR)
    for date in dates if near_names else ():
        for commit in repository.older_commits(date, place.path):
            if repository.has_name(commit, place, near_names):
                yield commit


def _judge_carried(
    carried: _Carried, place: Place, mentions: list[Mention], new: Version | None
) -> Verdict:
    change, dated = carried.change, carried.commit
    definition = _find_missed_definition(carried, place, mentions, new)
    if change.new is not None and definition is not None:
        reason = f"the lines beside it define `{mentions[0].name}`, which the text names"
        places = [definition, change.new]
        return Verdict("right" if definition == place else "moved", places, False, reason, dated)
    if change.new is not None:
        is_same = change.new == place
        certain = not is_same and _is_sure(carried, place, mentions, new)
        reason = f"the same text since {dated[:12]}" if is_same else f"the text of {dated[:12]}"
        return Verdict("right" if is_same else "moved", [change.new], certain, reason, dated)
    whole = find_whole(carried.old, new, place, mentions) if new else None
    proposals = [each for each in (whole, definition) if each]
    for each in change.proposals[:1]:  # the others are often the same place, a line longer
        near = [p for p in proposals if p.path == each.path and p.start <= each.end]
        proposals += [] if any(each.start <= p.end for p in near) else [each]
    if new is not None:
        named = _rank_by_names(new, place, mentions, expected=proposals[:1])
        defined = [p for p, fit in named if fit.defines and fit.mention is mentions[0]]
        if carried.fit.defines and defined and not whole and defined[0] not in proposals:
            proposals = [*defined[:1], *proposals]
        proposals = proposals or [each for each, _ in named]
    if not change.proposals and not proposals:
        return Verdict("gone", [], False, change.searched or "the file is gone", dated)
    reason = f"the lines have changed since {dated[:12]}"
    return Verdict("changed", proposals, False, reason, dated)


def _find_beside(carried: _Carried, place: Place, mentions: list[Mention]) -> int | None:
    """Return the line that a single line without names missed, or None.

    It is at most two lines away, and has a name in front of the citation: the definition, if the
    file has one.
    """
    old, row = carried.old, place.start
    names = set(map(fold_name, old.outline.names_between(row, row)))
    named = any(fold_name(mention.name) in names for mention in mentions)
    if row != place.end or named or not carried.is_dated:
        return None
    near = sorted(range(row - _BESIDE, row + _BESIDE + 1), key=lambda each: abs(each - row))
    near = [r for r in near if 0 < r <= len(old.lines) and not COMMENT.match(old.lines[r - 1])]
    for mention in mentions:
        rows = find_definitions(old, mention.name) or old.rows_by_name.get(mention.name, [])
        if mention.weight >= _IN_FRONT and (beside := [each for each in near if each in rows]):
            return beside[0]
    return None


def _find_missed_definition(
    carried: _Carried, place: Place, mentions: list[Mention], new: Version | None
) -> Place | None:
    """Return where the nearest name is defined now if a number missed its definition by little.

    A single line that has no name of the text, or is a comment, a few lines beside the definition
    of the nearest name, was a slip when it was written. A line of code in its body was one only if
    the name is right in front of the citation, and the line has moved since.
    """
    old = carried.old
    if place.start != place.end or not mentions or new is None:
        return None
    names = set(map(fold_name, old.outline.names_between(place.start, place.end)))
    is_comment = COMMENT.match(old.lines[place.start - 1])
    near_names = (fold_name(mention.name) for mention in mentions if mention.weight >= BESIDE)
    if not is_comment and not names.isdisjoint(near_names):
        return None
    name, rows = mentions[0].name, range(place.start - _SLIP, place.start + _SLIP + 1)
    is_inside = not is_comment and names_enclosing(old, place.start, place.end, mentions[0])
    if is_inside and (mentions[0].weight < 1 or carried.change.new == place):
        return None
    if not is_inside and find_definitions(old, name).keys().isdisjoint(rows):
        return None
    return find_definition(new, name)


def _is_sure(carried: _Carried, place: Place, mentions: list[Mention], new: Version | None) -> bool:
    """Return whether a carried citation may be written: its lines define what the text names.

    Without a definition there is a doubt: the number may have been wrong when it was written.
    """
    fit = carried.fit
    if new is None or not (mentions and carried.is_dated and fit.defines):
        return False
    nearest, names = mentions[0], carried.old.outline.names_between(place.start, place.end)
    is_named = fit.mention is nearest and fit.share >= _CLEARLY
    has_rival = any(mention.rival and mention.name not in names for mention in mentions)
    if not is_named or has_rival or _may_be_another(carried.old, place, nearest):
        return False
    named = carried.old.symbols_by_base_name(nearest.name)  # without its comment it is a doubt
    wholes = [(symbol.first, symbol.last) for symbol in named]
    return place.start == place.end or (place.start, place.end) in wholes


def _may_be_another(old: Version, place: Place, mention: Mention) -> bool:
    """Return whether the text may mean another symbol of the same name than the cited one."""
    name, qualifier = mention.name, base_name(mention.chain.rpartition(".")[0])
    if qualifier and any(base_name(symbol.name) == qualifier for symbol in old.outline.symbols):
        outer = Mention(qualifier, qualifier, 1)
        return not names_enclosing(old, place.start, place.end, outer)
    rows = (row for row in find_definitions(old, name) if not place.start <= row <= place.end)
    return not all(is_impl(old, row) for row in rows)


def _judge_by_names(
    new: Version | None,
    place: Place,
    mentions: list[Mention],
    dates: list[str],
    expected: list[Place],
) -> Verdict:
    """Judge a citation whose text of its time isn't known, or doesn't fit, by the names alone."""
    dated = dates[0] if dates else None
    if new is None:
        return Verdict("gone", [], False, "the file is gone", dated)
    if not mentions:
        return Verdict("unknown", [], False, "the text around it names nothing", dated)
    if place.end <= len(new.lines):
        fit = measure_fit(new, place.start, place.end, mentions)
        if fit.share >= _FITS and fit.mention is not None:
            reason = f"the lines have `{fit.mention.name}`, which the text names"
            return Verdict("right", [place], False, reason, dated)
    named = _rank_by_names(new, place, mentions, expected)
    if not named:
        return Verdict("unknown", [], False, "the file has none of the names around it", dated)
    places = [each for each, _ in named]
    fit = named[0][1]
    reason = (
        f"the cited lines lack `{fit.mention.name}`, which the text names" if fit.mention else ""
    )
    return Verdict("moved", places, False, reason, dated)


def _rank_by_names(
    new: Version, place: Place, mentions: list[Mention], expected: list[Place]
) -> list[tuple[Place, Fit]]:
    """Return places that have the names, best first; `expected` are where the lines may be."""
    center = expected[0].start if expected and expected[0].path == new.path else place.start
    size = place.end - place.start + 1
    scored: dict[Place, tuple[float, Fit]] = {}
    for mention in mentions[:4]:
        rows = new.rows_by_name.get(mention.name, [])
        near = nsmallest(_MAX_ROWS, rows, key=lambda row: abs(row - center))
        defining = find_definitions(new, mention.name)
        for row in {*near, *(defining if len(defining) <= _MAX_ROWS else ())}:
            candidate = place_at(new, row, size)
            fit = measure_fit(new, candidate.start, candidate.end, mentions)
            closeness = 1 / (1 + abs(candidate.start - center) / 20)
            has_nearest = fit.mention is mentions[0] or mention is mentions[0]
            score = (
                fit.share
                + 0.15 * fit.total
                + (0.6 if expected else 0.3) * closeness
                + 0.3 * has_nearest
                - 0.3 * bool(COMMENT.match(new.lines[row - 1]))
            )
            if fit.share >= _FITS and score > scored.get(candidate, (0.0, fit))[0]:
                scored[candidate] = score, fit
    ranked = sorted(scored.items(), key=lambda item: (-item[1][0], item[0]))
    return [(each, fit) for each, (_, fit) in ranked[:6]]
