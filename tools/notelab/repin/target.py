"""The commit that a source is carried to, and what lab.toml will say of it."""

import msgspec

from notelab.errors import NotelabError
from notelab.lab.lab_file import SourceTable
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
    made = _table_at(table, ref)
    source = Source(name, table.url, commit, table.release or None, made.wheel or None)
    try:
        return Target(library.resolve(source, ref), made)
    except SourceError as fault:
        if made.wheel:
            try:
                return Target(library.commit_of_wheel(source), made)
            except SourceError as no:
                raise NotelabError(f"{fault}; {made.wheel}: {no}", hint=fault.hint) from None
        raise


def _table_at(table: SourceTable, ref: str) -> SourceTable:
    """Return the table with REF as its release, and the wheel of the same version if it has one.

    `core_v0.16.1` beside `megatron-core==0.16.1` says how a release and its wheel are named.
    """
    package, _, version = table.wheel.partition("==")
    opening = table.release.removesuffix(version) if version else ""
    named = bool(version) and table.release.endswith(version) and ref.startswith(opening)
    plain = named and ref.removeprefix(opening)[:1].isdigit()
    wheel = f"{package}=={ref.removeprefix(opening)}" if plain else ""
    return msgspec.structs.replace(table, release=ref, wheel=wheel)
