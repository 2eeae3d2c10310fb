"""`shardbook repin`: reports what became of each citation, and writes those that may be written."""

import re
from collections.abc import Iterable

from msgspec.structs import asdict

from notelab.book.workbook import CheckSession
from notelab.errors import NotelabError, display_path
from notelab.files import write_with_journal
from notelab.repin.changes import CitationChange, Place, RepinResult
from notelab.repin.migrate import Migration
from notelab.repin.writing import build_files, plan_moves
from notelab.report.formats import format_json
from notelab.sources.git.command import list_uncommitted

_LINES = r"L(\d{1,8})(?:-L(\d{1,8}))?"
_ACCEPTED = re.compile(rf"(.+?):{_LINES}=(?:(.+):)?{_LINES}")
_HEADINGS = {
    "reformatted": "reformatted: the same in another layout",
    "edited": "edited: read each again, beginning with its first proposal",
    "gone": "gone: the lines were not found again",
}


def write(
    migration: Migration,
    outcome: RepinResult,
    session: CheckSession,
    *,
    reformatted: bool,
    accept: Iterable[str],
) -> list[str]:
    """Write the carried and accepted citations, in all files or none, and report what is left.

    `reformatted` accepts all citations of that class; `accept` accepts single ones, as `OLD=NEW`.

    Raises:
        NotelabError: an accepted text is no such citation, the files are in no repository or have
            uncommitted changes, or a file can't be written.
    """
    accepted = _parse_accepted(migration, outcome, accept, reformatted=reformatted)
    to = plan_moves(outcome, accepted, migration.books)
    changed = build_files(migration, to, session)
    root = session.lab(migration.pin.path.parent).root
    dirty = list_uncommitted(root, changed)
    if dirty is None:
        raise NotelabError(
            f"{display_path(root)} is no git repository, so what repin writes could not be undone",
            hint="`git init`, and commit the notes",
        )
    if dirty and migration.pin.commit != migration.commit:
        raise NotelabError(
            f"{len(dirty)} of the files to be written have changes that are not committed: "
            f"{', '.join(dirty[:5])}",
            hint="commit them first, so that you can review and undo what repin writes",
        )
    write_with_journal(root, changed)
    waiting = len(outcome.citations) - len(to)
    lines = [f"wrote {display_path(path)}" for path in sorted(changed)] or ["nothing to write"]
    remark = (
        f"{waiting} stay at the old commit (N217)"
        if waiting
        else "no citation stays at the old commit"
    )
    return [*lines, f"{len(to)} citations carried, {remark}"]


def _parse_accepted(
    migration: Migration, outcome: RepinResult, accept: Iterable[str], *, reformatted: bool
) -> dict[Place, Place]:
    accepted: dict[Place, Place] = {}
    if reformatted:
        kinds = (citation for citation in outcome.citations if citation.kind == "reformatted")
        accepted |= {citation.old: citation.proposals[0] for citation in kinds}
    cited_places = {citation.old for citation in outcome.citations}
    for text in accept:
        pair = _ACCEPTED.fullmatch(text)
        if pair is None:
            raise NotelabError(f"--accept {text}: expected PATH:L1-L9=L3-L11 or …=PATH:L3-L11")
        old = Place(pair[1], int(pair[2]), int(pair[3] or pair[2]))
        new = Place(pair[4] or pair[1], int(pair[5]), int(pair[6] or pair[5]))
        if old not in cited_places:
            raise NotelabError(f"--accept {text}: nothing cites {old}")
        # A written citation leaves the list, so a wrong range would never be seen again.
        version = migration.new_version(new.path)
        if version is None:
            raise NotelabError(f"--accept {text}: {new.path} can't be read at the new commit")
        if not 0 < new.start <= new.end <= version.outline.lines:
            lines = f"lines 1 to {version.outline.lines} of {new.path}"
            raise NotelabError(f"--accept {text}: expected {lines}, the first before the last")
        accepted[old] = new
    return accepted


def as_json(outcome: RepinResult) -> str:
    """Return the lists as one JSON object."""
    return format_json(
        {
            "source": outcome.source,
            "old": outcome.old_commit,
            "new": outcome.new_commit,
            "citations": [
                {
                    "source": outcome.source,
                    **asdict(citation.old),
                    "class": citation.kind,
                    "new": citation.new,
                    "proposals": citation.proposals,
                    "alarm": citation.alarm,
                    "pages": citation.pages,
                }
                for citation in outcome.citations
            ],
            "names": [
                {"name": name.name, name.change: True, "pages": name.pages}
                for name in outcome.names
            ],
        }
    )


def as_text(outcome: RepinResult) -> list[str]:
    """Return the lists for a terminal of 80 columns."""
    kinds = [citation.kind for citation in outcome.citations]
    carried = kinds.count("same") + kinds.count("moved")
    lines = [
        f"{outcome.source}: {outcome.old_commit[:12]} to {outcome.new_commit[:12]}",
        f"  {len(kinds)} distinct citations: {carried} carried "
        f"({kinds.count('same')} same, {kinds.count('moved')} moved)",
    ]
    for kind, heading in _HEADINGS.items():
        of_kind = [citation for citation in outcome.citations if citation.kind == kind]
        if of_kind:
            lines += ["", f"{len(of_kind)} {heading}"]
            lines += [line for citation in of_kind for line in _format_entry(citation)]
    return lines


def _format_entry(citation: CitationChange) -> list[str]:
    lines = [f"  {citation.old}"]
    lines += [f"    {f'in {citation.symbol}'[:76]}"] if citation.symbol else []
    lines += [
        f"    -> {str(to).removeprefix(f'{citation.old.path}:')}" for to in citation.proposals
    ]
    lines += [f"    {citation.reason}"] if citation.reason else []
    return lines
