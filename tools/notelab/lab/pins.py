"""Pin files: forty hexadecimal digits and a newline, the one place where a commit stands."""

import re
import shlex
from pathlib import Path

import msgspec

from notelab.errors import display_path
from notelab.lines import split_lines
from notelab.regular_files import read_regular

_SHA = re.compile(r"[0-9a-f]{40}")


class Pin(msgspec.Struct, frozen=True):
    """A source's pin as found on disk: a commit, or the code and reason of what is wrong."""

    source: str
    path: Path
    commit: str = ""
    code: str = ""
    problem: str = ""
    found: str = ""


def read(source: str, path: Path) -> Pin:
    """Read a pin file; what is wrong with it is in the answer, never raised."""
    if path.is_symlink():  # what it points to may be nobody's to print
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
        said = split_lines(commit.strip())[0][:60] if commit.strip() else "nothing"
        digits = f" ({len(commit)} characters)" if commit.strip() else ""
        return Pin(
            source,
            path,
            code="N121",
            problem=f"the pin of `{source}` is not a full commit",
            found=f"`{said}`{digits}",
        )
    return Pin(source, path, commit)


def text_of(commit: str) -> str:
    """Return a pin file's content."""
    return f"{commit}\n"


def command_for(pin: Pin, ref: str = "REF", command: str = "pin") -> str:
    """Return the command that writes a pin, with its lab: others may own a source of that name."""
    lab = shlex.quote(display_path(pin.path.parent))
    return f"shardbook {command} {pin.source} {ref} --lab {lab}"
