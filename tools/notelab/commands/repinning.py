"""`shardbook repin`: what became of each citation, and writing what may be written."""

from pathlib import Path

import msgspec

from notelab.book.finding_labs import default_labs
from notelab.book.workbook import Bench
from notelab.errors import NotelabError
from notelab.page.citation import written
from notelab.repin.carried import Carried, Place, Repin

_SAID = {
    "edited": "edited: read each again, the proposal first",
    "gone": "gone: nothing in the new commit says this any more",
    "reformatted": "reformatted: the same in another layout",
}


def owner(source: str, folder: Path | None, here: Path, bench: Bench) -> Path:
    """Return the folder whose lab owns a source and its pin.

    Raises:
        NotelabError: none does, or several do and none was named.
    """
    labs = [folder.resolve()] if folder else default_labs(here)
    opened = [bench.lab(one) for one in labs]
    owners = sorted({lab.pins_folder for lab in opened if source in lab.sources})
    if len(owners) == 1:
        return owners[0]
    names = ", ".join(sorted({name for lab in opened for name in lab.sources})) or "none"
    if not owners:
        raise NotelabError(f"no lab has a source called {source!r}; there are: {names}")
    raise NotelabError(
        f"several labs have a source called {source!r}: {', '.join(map(str, owners))}",
        hint="name the one meant with --lab FOLDER",
    )


def as_json(made: Repin) -> str:
    """Write the lists as one JSON object."""
    body = {
        "source": made.source,
        "old": made.old_commit,
        "new": made.new_commit,
        "citations": [
            {
                "source": one.source,
                "path": one.old.path,
                "start": one.old.start,
                "end": one.old.end,
                "class": one.kind,
                "new": one.new,
                "proposals": one.proposals,
                "alarm": one.alarm,
                "pages": one.pages,
            }
            for one in made.citations
        ],
        "names": [
            {"name": one.name, one.change: True, "change": one.change, "pages": one.pages}
            for one in made.names
        ],
    }
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode() + "\n"


def as_text(made: Repin) -> list[str]:
    """Write the lists for a terminal of 80 columns."""
    kinds = [one.kind for one in made.citations]
    carried = kinds.count("same") + kinds.count("moved")
    lines = [
        f"{made.source}: {made.old_commit[:12]} to {made.new_commit[:12]}",
        f"  {len(kinds)} distinct citations: {carried} carried "
        f"({kinds.count('same')} same, {kinds.count('moved')} moved)",
    ]
    for kind in ("reformatted", "edited", "gone"):
        of_kind = [one for one in made.citations if one.kind == kind]
        if of_kind:
            lines += ["", f"{len(of_kind)} {_SAID[kind]}"]
            lines += [line for one in of_kind for line in _entry(one)]
    return lines


def _entry(one: Carried) -> list[str]:
    lines = [f"  {_text(one.old)}"]
    lines += [f"    {f'in {one.symbol}'[:76]}"] if one.symbol else []
    for place in one.proposals:
        near = place.path == one.old.path
        said = _text(place).rpartition(":")[2] if near else _text(place)
        lines.append(f"    -> {said}")
    lines += [f"    {one.reason}"] if one.reason else []
    return lines


def _text(place: Place) -> str:
    return written(place.path, place.start, place.end)
