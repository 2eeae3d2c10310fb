"""The format of a text file, recognized by its content instead of its name."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

from shardlab.data.corpus import DataError, require

JSON = (".json", ".jsonl", ".ndjson")  # Megatron's own name for JSON lines is .json
LINES_CHECKED = 10  # lines that are read to recognize JSON
PARQUET = "pandas.read_parquet({0!r}).to_json({0!r} + 'l', orient='records', lines=True)"
# The first bytes of files that aren't text, their format, and a command that makes text of them.
MAGIC = {
    b"\x1f\x8b": ("gzip", "gunzip -k {0}"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "zstd -d {0}"),
    b"PK\x03\x04": ("zip", "unzip {0}"),
    b"PAR1": ("Parquet", f'python -c "import pandas; {PARQUET}"'),
    b"\xfd7zXZ\0": ("xz", "unxz -k {0}"),
    b"BZh91AY&SY": ("bzip2", "bunzip2 -k {0}"),
    b"\xff\xfe": ("UTF-16", "iconv -f UTF-16 -t UTF-8 {0} > FILE"),
    b"\xfe\xff": ("UTF-16", "iconv -f UTF-16 -t UTF-8 {0} > FILE"),
}
BOM = b"\xef\xbb\xbf"  # some programs put it before UTF-8
ARCHIVE = slice(257, 262)  # the bytes of a tar archive that are "ustar"


def holds_json_lines(path: Path) -> bool:
    """Return whether each line of a file is a JSON object.

    A file with a JSON suffix counts as such, so that its faulty lines are reported. Another file
    does if its first line that isn't blank begins with a brace, and that line or one of the next is
    an object.

    Raises:
        DataError: the file is compressed, or a table; the message has a command that makes text.
    """
    with path.open("rb") as file:
        begin = file.read(512)
        tar = ("tar", "tar -xf {0}") if begin[ARCHIVE] == b"ustar" else None
        matches = (kind for magic, kind in MAGIC.items() if begin.startswith(magic))
        if kind := next(matches, tar):
            name, command = kind[0], kind[1].format(str(path))
            raise DataError(f"{path} is a {name} file, not text: give what `{command}` makes of it")
        if path.suffix.lower() in JSON:
            return True
        file.seek(len(BOM) if begin.startswith(BOM) else 0)
        lines = filter(bytes.strip, file)
        first = next(lines, b"")
        braced = first.lstrip().startswith(b"{")
        return braced and any(map(_is_object, (first, *islice(lines, LINES_CHECKED))))


def read_field(line: bytes, field: str) -> str:
    """Return the text in a field of a line's JSON object.

    Raises:
        ValueError: the line has no such text; the message says why.
    """
    try:
        value = json.loads(decode(line))
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg.removesuffix(' at')} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    require(isinstance(value, dict), f"{_abbreviate(value)} is no JSON object")
    names = ", ".join(map(repr, islice(value, 5))) or "none"
    require(field in value, f"no field {field!r}, but {names}: --field names another")
    require(
        isinstance(text := value[field], str), f"{field!r} is {_abbreviate(text)}, not a string"
    )
    text.encode()  # half of a surrogate pair is no text either
    return str(text)


def decode(content: bytes) -> str:
    """Return UTF-8 bytes as text, without a byte order mark."""
    return content.decode().removeprefix("\ufeff")


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _abbreviate(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 40 else f"{text[:36]} …"
