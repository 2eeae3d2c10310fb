"""`shardbook repin`: what became of each citation, and writing what may be written."""

import re
from collections.abc import Iterable

from msgspec.structs import asdict

from notelab.book.workbook import Bench
from notelab.errors import NotelabError, display_path
from notelab.repin import journal
from notelab.repin.changes import CitationChange, Place, RepinResult
from notelab.repin.migrate import Migration
from notelab.repin.writing import build_files, plan_moves
from notelab.report.json import format_json
from notelab.sources.git.uncommitted import uncommitted

_LINES = r"L(\d{1,8})(?:-L(\d{1,8}))?"
_ACCEPTED = re.compile(rf"(.+?):{_LINES}=(?:(.+):)?{_LINES}")
_SAID = {
    "reformatted": "reformatted: the same in another layout",
    "edited": "edited: read each again, the proposal first",
    "gone": "gone: nothing in the new commit says this any more",
}


def write(
    journey: Migration, made: RepinResult, bench: Bench, *, reformatted: bool, accept: Iterable[str]
) -> list[str]:
    """Write what was carried and accepted, in all files or none, and say what is left.

    Accepted may be all that is only `reformatted`, and lines one by one, as `OLD=NEW`.

    Raises:
        NotelabError: something accepted is no such citation, the files to be written are in no
            repository or have changes that are not committed, or one can't be written.
    """
    to = plan_moves(made, _accepted(journey, made, accept, reformatted=reformatted))
    changed = build_files(journey, to, bench)
    root = bench.lab(journey.pin.path.parent).root
    dirty = uncommitted(root, changed)
    if dirty is None:
        raise NotelabError(
            f"{display_path(root)} is no git repository: what repin writes could not be taken back",
            hint="`git init`, and commit the notes",
        )
    if dirty and journey.pin.commit != journey.commit:
        raise NotelabError(
            f"{len(dirty)} of the files to be written have changes that are not committed: "
            f"{', '.join(dirty[:5])}",
            hint="commit them, so that what repin writes can be told from them and taken back",
        )
    journal.write(root, changed)
    waiting = len(made.citations) - len(to)
    lines = [f"wrote {display_path(path)}" for path in sorted(changed)] or ["nothing to write"]
    left = f"{waiting} wait at the old commit (N217)" if waiting else "none waits"
    return [*lines, f"{len(to)} citations carried, {left}"]


def _accepted(
    journey: Migration, made: RepinResult, accept: Iterable[str], *, reformatted: bool
) -> dict[Place, Place]:
    found: dict[Place, Place] = {}
    if reformatted:
        kinds = (one for one in made.citations if one.kind == "reformatted")
        found |= {one.old: one.proposals[0] for one in kinds}
    known = {one.old for one in made.citations}
    for text in accept:
        pair = _ACCEPTED.fullmatch(text)
        if pair is None:
            raise NotelabError(f"--accept {text}: expected PATH:L1-L9=L3-L11 or …=PATH:L3-L11")
        old = Place(pair[1], int(pair[2]), int(pair[3] or pair[2]))
        new = Place(pair[4] or pair[1], int(pair[5]), int(pair[6] or pair[5]))
        if old not in known:
            raise NotelabError(f"--accept {text}: nothing cites {old}")
        # What is written is no longer on the list, so lines that don't exist would be lost there.
        version = journey.new_version(new.path)
        if version is None:
            raise NotelabError(f"--accept {text}: {new.path} can't be read at the new commit")
        if not 0 < new.start <= new.end <= version.outline.lines:
            lines = f"lines 1 to {version.outline.lines} of {new.path}"
            raise NotelabError(f"--accept {text}: expected {lines}, the first before the last")
        found[old] = new
    return found


def as_json(made: RepinResult) -> str:
    """Write the lists as one JSON object."""
    return format_json(
        {
            "source": made.source,
            "old": made.old_commit,
            "new": made.new_commit,
            "citations": [
                {
                    "source": made.source,
                    **asdict(one.old),
                    "class": one.kind,
                    "new": one.new,
                    "proposals": one.proposals,
                    "alarm": one.alarm,
                    "pages": one.pages,
                }
                for one in made.citations
            ],
            "names": [
                {"name": one.name, one.change: True, "pages": one.pages} for one in made.names
            ],
        }
    )


def as_text(made: RepinResult) -> list[str]:
    """Write the lists for a terminal of 80 columns."""
    kinds = [one.kind for one in made.citations]
    carried = kinds.count("same") + kinds.count("moved")
    lines = [
        f"{made.source}: {made.old_commit[:12]} to {made.new_commit[:12]}",
        f"  {len(kinds)} distinct citations: {carried} carried "
        f"({kinds.count('same')} same, {kinds.count('moved')} moved)",
    ]
    for kind, said in _SAID.items():
        of_kind = [one for one in made.citations if one.kind == kind]
        if of_kind:
            lines += ["", f"{len(of_kind)} {said}"]
            lines += [line for one in of_kind for line in _entry(one)]
    return lines


def _entry(one: CitationChange) -> list[str]:
    lines = [f"  {one.old}"]
    lines += [f"    {f'in {one.symbol}'[:76]}"] if one.symbol else []
    lines += [f"    -> {str(to).removeprefix(f'{one.old.path}:')}" for to in one.proposals]
    lines += [f"    {one.reason}"] if one.reason else []
    return lines
