"""What a text file holds, which its content says and not its name."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

from shardlab.data.corpus import DataError, demand

JSON = (".json", ".jsonl", ".ndjson")  # Megatron's own name for JSON lines is .json
BEGUN = 10  # lines of another file that are looked at
PARQUET = "pandas.read_parquet({0!r}).to_json({0!r} + 'l', orient='records', lines=True)"
# How files begin that are no text, what they are, and what makes text of them.
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
ARCHIVE = slice(257, 262)  # where a tar archive says that it is one


def holds_json_lines(path: Path) -> bool:
    """Say whether a file has a JSON object a line.

    A file named as JSON is taken to have, so that a faulty line is named. Any other has if its
    first line that isn't blank begins with a brace, and that or one of the next is an object.

    Raises:
        DataError: the file is compressed, or a table; says what makes text of it.
    """
    with path.open("rb") as file:
        begin = file.read(512)
        tar = ("tar", "tar -xf {0}") if begin[ARCHIVE] == b"ustar" else None
        known = (what for magic, what in MAGIC.items() if begin.startswith(magic))
        if what := next(known, tar):
            name, command = what[0], what[1].format(str(path))
            raise DataError(f"{path} is a {name} file, not text: give what `{command}` makes of it")
        if path.suffix.lower() in JSON:
            return True
        file.seek(len(BOM) if begin.startswith(BOM) else 0)
        lines = filter(bytes.strip, file)
        first = next(lines, b"")
        braced = first.lstrip().startswith(b"{")
        return braced and any(map(_is_object, (first, *islice(lines, BEGUN))))


def read_field(line: bytes, field: str) -> str:
    """Return the text in a field of a line's JSON object.

    Raises:
        ValueError: says why there is none.
    """
    try:
        value = json.loads(decode(line))
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg.removesuffix(' at')} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    demand(isinstance(value, dict), f"{_shown(value)} is no JSON object")
    names = ", ".join(map(repr, islice(value, 5))) or "none"
    demand(field in value, f"no field {field!r}, but {names}: --field names another")
    demand(isinstance(text := value[field], str), f"{field!r} is {_shown(text)}, not a string")
    text.encode()  # half of a surrogate pair is no text either
    return str(text)


def decode(content: bytes) -> str:
    """Return UTF-8 as text, without the mark that some programs put before it."""
    return content.decode().removeprefix("\ufeff")


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 40 else f"{text[:36]} …"
