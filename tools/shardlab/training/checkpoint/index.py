"""The index of a checkpoint: which tensors there are, and which file holds which piece of each.

An index is plain JSON, read into typed structures and checked before it is believed: a checkpoint
may come from anybody. A piece is a box of its tensor: where it begins in each dimension, and how
long it is there. Nothing in it depends on the grid that wrote it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import msgspec

FORMAT = "shardlab checkpoint 1"
MOST_BYTES = 64 * 2**20  # of an index: more than any model here needs
MOST_PIECES = 1024
_FILE = re.compile(r"shards-[0-9a-f]{16}/rank-[0-9]{5}\.safetensors")

Box = tuple[Sequence[int], Sequence[int]]  # offset, shape


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, read, or used for this model; says what to do."""


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A box of a tensor.

    Attributes:
        file: where it lies, below the checkpoint's folder.
        offset: where it begins in the whole tensor.
        shape: how large it is.
        key: what it is called in the file, if not as the tensor: a file may hold several boxes.
    """

    file: str
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    key: str = ""


class StoredTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole tensor: dtype ("float64"), shape, and the pieces that make it up."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint's table of contents.

    Attributes:
        format: FORMAT.
        config: what the model was made of; a loader compares.
        optimizer: the settings of each parameter group.
        record: whatever the trainer noted: step, position in the data, schedule.
        tensors: by name.
        masks: how many each dropout of the model has drawn.
    """

    format: str
    config: dict[str, Any]
    optimizer: list[dict[str, Any]]
    record: dict[str, Any]
    tensors: dict[str, StoredTensor]
    masks: Annotated[int, msgspec.Meta(ge=0)] = 0


def read(path: Path) -> Index:
    """Return the index at `path`, checked.

    Raises:
        CheckpointError: there is none, or it is no index of this format.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise CheckpointError(
            f"no checkpoint in {path.parent}: it has no {path.name} (a save that was cut short "
            "leaves none); give the folder that save() was given"
        ) from None
    if len(content) > MOST_BYTES:
        raise CheckpointError(f"{path} is larger than {MOST_BYTES} bytes: not an index")
    try:
        index = msgspec.json.decode(content, type=Index)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} is not an index of a checkpoint: {error}") from None
    if index.format != FORMAT:
        raise CheckpointError(f"{path} has format {index.format!r}, this program reads {FORMAT!r}")
    for name, entry in index.tensors.items():
        check(name, entry)
    return index


def check(name: str, entry: StoredTensor) -> None:
    """Refuse an entry whose pieces do not make up the whole, each element once.

    Raises:
        CheckpointError: names the tensor and the piece.
    """
    if len(entry.pieces) > MOST_PIECES:
        raise CheckpointError(
            f"{name} is in {len(entry.pieces)} pieces; at most {MOST_PIECES} are read"
        )
    for piece in entry.pieces:
        if not _FILE.fullmatch(piece.file):
            raise CheckpointError(f"{name} lies in {piece.file!r}: not a shard of this checkpoint")
        dims = {len(piece.offset), len(piece.shape), len(entry.shape)}
        if len(dims) != 1 or not all(
            o >= 0 and n > 0 and o + n <= whole
            for o, n, whole in zip(piece.offset, piece.shape, entry.shape, strict=True)
        ):
            raise CheckpointError(f"{name} {entry.shape} has a piece outside it: {piece}")
    for one, other in combinations(entry.pieces, 2):
        if overlap((one.offset, one.shape), (other.offset, other.shape)):
            raise CheckpointError(f"{name} has elements twice: in {one.file} and in {other.file}")
    found = sum(math.prod(piece.shape) for piece in entry.pieces)
    if found != math.prod(entry.shape):
        raise CheckpointError(
            f"{name} {entry.shape} has {found} of its {math.prod(entry.shape)} elements in the "
            "index: no rank wrote the others"
        )


def overlap(one: Box, other: Box) -> Box | None:
    """Return the box that two boxes share, or None."""
    begin = [max(a, b) for a, b in zip(one[0], other[0], strict=True)]
    ends = zip(one[0], one[1], other[0], other[1], strict=True)
    shape = [min(a + n, b + m) - c for (a, n, b, m), c in zip(ends, begin, strict=True)]
    return (begin, shape) if all(n > 0 for n in shape) else None


def merge(parts: Iterable[Mapping[str, StoredTensor]]) -> dict[str, StoredTensor]:
    """Join the ranks' entries into one table, and prove that it holds all that any rank holds.

    Args:
        parts: of each rank, an entry for every tensor of which it holds a part; its pieces are
            those that the rank wrote, and may be none.

    Raises:
        CheckpointError: ranks disagree about a tensor's dtype or shape, or an element of a tensor
            was written by no rank or by two.
    """
    whole: dict[str, StoredTensor] = {}
    for part in parts:
        for name, entry in part.items():
            known = whole.setdefault(name, StoredTensor(entry.dtype, entry.shape, ()))
            if (known.dtype, known.shape) != (entry.dtype, entry.shape):
                raise CheckpointError(
                    f"ranks disagree about {name}: {known.dtype}{known.shape} or "
                    f"{entry.dtype}{entry.shape}; build one model on all of them"
                )
            whole[name] = StoredTensor(entry.dtype, entry.shape, known.pieces + entry.pieces)
    for name, entry in whole.items():
        check(name, entry)
    return whole
