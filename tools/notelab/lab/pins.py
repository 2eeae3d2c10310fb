"""Pin files: forty hexadecimal digits and a newline; the only place that holds a commit.

The release and the wheel of a source in a lab file change together with its pin.
"""

import re
import shlex
from pathlib import Path

import msgspec

from notelab.errors import NotelabError, display_path
from notelab.files import read_regular
from notelab.lab.lab_file import SourceTable
from notelab.lines import split_lines
from notelab.sources.answers import WORKTREE

HEAD = "HEAD"  # in place of a pin file: the source is the working tree
_SHA = re.compile(r"[0-9a-f]{40}")


class Pin(msgspec.Struct, frozen=True):
    """A source's pin as found on disk: its commit, or the code and the text of a problem."""

    source: str
    path: Path
    commit: str = ""
    code: str = ""
    problem: str = ""
    actual: str = ""


def read(source: str, path: Path) -> Pin:
    """Read a pin file; problems are in the result, and no error is raised.

    A source whose pin is `HEAD` has no pin file: it follows the working tree.
    """
    if path.name == HEAD:
        return Pin(source, path, WORKTREE)
    if path.is_symlink():  # the target's content must not appear in a message
        problem = "the pin file is a symbolic link; not followed"
        return Pin(source, path, code="N120", problem=problem)
    try:
        data = read_regular(path, 1000)
    except FileNotFoundError:
        return Pin(source, path, code="N120", problem=f"source `{source}` has no pin file")
    except OSError as fault:
        reason = fault.strerror or str(fault)
        return Pin(source, path, code="N120", problem=f"the pin file cannot be read: {reason}")
    text = data.decode("utf-8", "replace")
    commit = text.rstrip("\r\n")
    if not _SHA.fullmatch(commit):
        first_line = split_lines(commit.strip())[0][:60] if commit.strip() else "nothing"
        digits = f" ({len(commit)} characters)" if commit.strip() else ""
        return Pin(
            source,
            path,
            code="N121",
            problem=f"the pin of `{source}` is not a full commit",
            actual=f"`{first_line}`{digits}",
        )
    return Pin(source, path, commit)


def require_file(pin: Pin) -> None:
    """Raise an error if a source follows the working tree, because it has no pin to move."""
    if pin.commit == WORKTREE:
        raise NotelabError(
            f"`{pin.source}` follows the working tree , so it has no pin to move",
            hint="`shardbook check --fix` moves its citations after their lines",
        )


def format_pin(commit: str) -> str:
    """Return the content of a pin file."""
    return f"{commit}\n"


def format_command(pin: Pin, ref: str = "REF", command: str = "pin") -> str:
    """Return the command that writes a pin; it names the lab, as others may have such a source."""
    lab = shlex.quote(display_path(pin.path.parent))
    return f"shardbook {command} {pin.source} {ref} --lab {lab}"


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
