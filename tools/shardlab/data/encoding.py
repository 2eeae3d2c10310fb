"""From a text file to tokens: what kind of file it is, bytes as tokens, or a tokenizer from a file.

A file is recognized by its content instead of its name. Nothing is downloaded: a tokenizer is the
`tokenizer.json` that comes with a model.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from shardlab.data.corpus import Array, DataError, require


class Bytes:
    """Each byte of the text in UTF-8 is a token, and 256 ends a document.

    Attributes:
        dtype: holds each token.
    """

    dtype: np.dtype[Any] = np.dtype(np.uint16)

    def encode(self, text: str) -> Array:
        """Return the bytes and the end token; an empty array for an empty text."""
        content = np.frombuffer(text.encode(), np.uint8)
        return np.append(content, np.uint16(256)) if len(content) else content

    def decode(self, tokens: list[int]) -> str:
        """Return text for display; the end of a document, and a token above 255, is shown as ␄."""
        parts = bytes(int(token) if 0 <= token < 256 else 0 for token in tokens)
        return parts.decode(errors="replace").replace("\0", "␄")


class FileTokenizer:
    """A tokenizer.json.

    Args:
        path: the path of the file.
        end: the text of the token that ends a document; None for no such token.

    Attributes:
        dtype: a dtype that can represent each token.

    Raises:
        DataError: there is no such file or token, or `tokenizers` isn't installed.
    """

    def __init__(self, path: str, end: str | None) -> None:
        try:
            tokenizers: Any = import_module("tokenizers")
        except ModuleNotFoundError:
            raise DataError(
                "a tokenizer.json is read by the package tokenizers, which isn't installed: "
                "`pip install tokenizers`, or leave --tokenizer for bytes"
            ) from None
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_file(path)
        except Exception as error:  # tokenizers raises nothing narrower, of a missing file too
            raise DataError(f"{path} is no tokenizer: {error}; give a model's, or bytes") from None
        vocabulary = self._tokenizer.get_vocab()
        last = max(vocabulary.values(), default=0)  # numbers may have gaps
        # Megatron's `DType.optimal_dtype` asks for fewer than 65,500 tokens.
        small = len(vocabulary) < 65_500 and last < 1 << 16
        self.dtype = np.dtype(np.uint16 if small else np.int32)
        self._end = [] if end is None else [self._tokenizer.token_to_id(end)]
        require(None not in self._end, f"{path} has no token {end!r}: give one of its own as --end")

    def encode(self, text: str) -> Array:
        """Return the tokens and the end token; an empty array for a text without tokens."""
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return np.array([*ids, *self._end] if ids else [], np.int64)

    def decode(self, tokens: list[int]) -> str:
        """Return the text, with its special tokens."""
        valid = [int(token) for token in tokens if 0 <= token < 1 << 32]  # as it passes over others
        return str(self._tokenizer.decode(valid, skip_special_tokens=False))


@cache
def by_name(name: str, end: str | None = None) -> Bytes | FileTokenizer:
    """Return the encoder "bytes", or the tokenizer of a file."""
    if name != "bytes":
        return FileTokenizer(name, end)
    require(end is None, "--end is for a tokenizer.json; bytes end each document with 256")
    return Bytes()


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
