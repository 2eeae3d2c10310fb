"""The commit that a source is carried to, and what lab.toml will say of it."""

import msgspec

from notelab.errors import NotelabError
from notelab.lab.lab_file import SourceTable
from notelab.lab.release import table_at
from notelab.sources.answers import Source, SourceError
from notelab.sources.library import Library


class Target(msgspec.Struct, frozen=True):
    """A commit, and the source's table once it is pinned there."""

    commit: str
    table: SourceTable


def find(name: str, table: SourceTable, commit: str, ref: str, library: Library) -> Target:
    """Return the commit that REF names: asked of git, else of the wheel of that release.

    Raises:
        NotelabError: there is no such ref, or nobody could be asked.
    """
    made = table_at(table, ref)
    source = Source(name, table.url, commit, table.release or None, made.wheel or None)
    try:
        found = library.resolve(source, ref)
        return Target(found, table_at(table, ref, found))
    except SourceError as fault:
        if made.wheel:
            try:
                return Target(library.commit_of_wheel(source), made)
            except SourceError as no:
                raise NotelabError(f"{fault}; {made.wheel}: {no}", hint=fault.hint) from None
        raise
