"""Pin files: forty hexadecimal digits and a newline; the only place that holds a commit."""

import re
import shlex
from pathlib import Path

import msgspec

from notelab.errors import display_path
from notelab.lines import split_lines
from notelab.regular_files import read_regular

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
    """Read a pin file; problems are in the result, and no error is raised."""
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


def format_pin(commit: str) -> str:
    """Return the content of a pin file."""
    return f"{commit}\n"


def format_command(pin: Pin, ref: str = "REF", command: str = "pin") -> str:
    """Return the command that writes a pin; it names the lab, as others may have such a source."""
    lab = shlex.quote(display_path(pin.path.parent))
    return f"shardbook {command} {pin.source} {ref} --lab {lab}"
