"""The release and the wheel that a lab file names of a source: they go where its pin goes."""

import re

import msgspec

from notelab.lab.lab_file import SourceTable


def table_at(table: SourceTable, ref: str, commit: str = "") -> SourceTable:
    """Return the table with REF as its release, and the wheel of the same version if it has one.

    `core_v0.16.1` beside `megatron-core==0.16.1` says how a release and its wheel are named. What
    names no more than `commit` by its digits is no release.
    """
    if ref == table.release:
        return table
    package, _, version = table.wheel.partition("==")
    opening = table.release.removesuffix(version) if version else ""
    named = bool(version) and table.release.endswith(version) and ref.startswith(opening)
    plain = named and ref.removeprefix(opening)[:1].isdigit()
    wheel = f"{package}=={ref.removeprefix(opening)}" if plain else ""
    release = "" if commit.startswith(ref) else ref
    return msgspec.structs.replace(table, release=release, wheel=wheel)


def renamed(data: bytes, source: str, old: SourceTable, now: SourceTable) -> bytes:
    """Return a lab file that names the new release and wheel, with nothing else of it changed."""
    before, table, rest = data.decode().partition(f"[sources.{source}]")
    mine, bracket, after = rest.partition("\n[")
    for key in ("release", "wheel"):
        was, said = getattr(old, key), getattr(now, key)
        mine = re.sub(rf'(?m)^({key}\s*=\s*)"{re.escape(was)}"', rf'\g<1>"{said}"', mine)
    return (before + table + mine + bracket + after).encode()
