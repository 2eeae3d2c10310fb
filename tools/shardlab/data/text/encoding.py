"""From text to tokens: bytes as tokens, or a tokenizer of Hugging Face's `tokenizers` from a file.

Nothing is downloaded: a tokenizer is the `tokenizer.json` that comes with a model.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
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
