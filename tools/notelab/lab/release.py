"""The release and the wheel of a source in a lab file, which change together with its pin."""

import re

import msgspec

from notelab.lab.lab_file import SourceTable


def table_at(table: SourceTable, ref: str, commit: str = "") -> SourceTable:
    """Return the table with `ref` as its release, and the wheel of the same version if it has one.

    `core_v0.16.1` beside `megatron-core==0.16.1` shows how releases and wheels are named. A `ref`
    that is only a prefix of `commit` is no release.
    """
    if ref == table.release:
        return table
    package, _, version = table.wheel.partition("==")
    prefix = table.release.removesuffix(version) if version else ""
    has_pattern = bool(version) and table.release.endswith(version) and ref.startswith(prefix)
    is_version = has_pattern and ref.removeprefix(prefix)[:1].isdigit()
    wheel = f"{package}=={ref.removeprefix(prefix)}" if is_version else ""
    release = "" if commit.startswith(ref) else ref
    return msgspec.structs.replace(table, release=release, wheel=wheel)


def replace_release(data: bytes, source: str, old: SourceTable, new: SourceTable) -> bytes:
    """Return a lab file with the new release and wheel; nothing else in it changes."""
    before, table, rest = data.decode().partition(f"[sources.{source}]")
    source_table, bracket, after = rest.partition("\n[")
    for key in ("release", "wheel"):
        old_value, new_value = getattr(old, key), getattr(new, key)
        source_table = re.sub(
            rf'(?m)^({key}\s*=\s*)"{re.escape(old_value)}"', rf'\g<1>"{new_value}"', source_table
        )
    return (before + table + source_table + bracket + after).encode()
