"""The index of a checkpoint: its tensors, and which file has which piece of each.

An index is plain JSON. It is parsed into typed structures and checked before use, because a
checkpoint may come from an untrusted source. A piece is a box of its tensor: its begin and its
length in each dimension. An index doesn't depend on the grid that wrote it.
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
MAX_BYTES = 64 * 2**20  # of an index; no model here needs more
MAX_PIECES = 1024
_FILE = re.compile(r"shards-[0-9a-f]{16}/rank-[0-9]{5}\.safetensors")

Box = tuple[Sequence[int], Sequence[int]]  # offset, shape


class CheckpointError(RuntimeError):
    """Raised when a checkpoint can't be written, read or used for this model; says what to do."""


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A box of a tensor.

    Attributes:
        file: the file, relative to the checkpoint's folder.
        offset: the box's begin in the whole tensor.
        shape: the box's shape.
        key: its name in the file, if it isn't the tensor's name; a file may have several boxes.
    """

    file: str
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    key: str = ""


class StoredTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole tensor: its dtype ("float64"), its shape and its pieces."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint's table of contents.

    Attributes:
        format: FORMAT.
        config: the model's settings, which a load compares.
        optimizer: the settings of each parameter group.
        record: the trainer's values: step, position in the data, schedule.
        tensors: the tensors, by name.
        masks: the number of masks that each dropout of the model has drawn.
    """

    format: str
    config: dict[str, Any]
    optimizer: list[dict[str, Any]]
    record: dict[str, Any]
    tensors: dict[str, StoredTensor]
    masks: Annotated[int, msgspec.Meta(ge=0)] = 0


def read(path: Path) -> Index:
    """Read and check the index at `path`.

    Raises:
        CheckpointError: there is no index, or it isn't valid.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise CheckpointError(
            f"no checkpoint in {path.parent}: it has no {path.name} (a save that was cut short "
            "leaves none); give the folder that save() was given"
        ) from None
    if len(content) > MAX_BYTES:
        raise CheckpointError(f"{path} is larger than {MAX_BYTES} bytes: not an index")
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
    """Refuse an entry whose pieces don't contain each element of the tensor once.

    Raises:
        CheckpointError: names the tensor and the piece.
    """
    if len(entry.pieces) > MAX_PIECES:
        raise CheckpointError(
            f"{name} is in {len(entry.pieces)} pieces; at most {MAX_PIECES} are read"
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
    for first, second in combinations(entry.pieces, 2):
        if overlap((first.offset, first.shape), (second.offset, second.shape)):
            raise CheckpointError(
                f"{name} has elements twice: in {first.file} and in {second.file}"
            )
    elements = sum(math.prod(piece.shape) for piece in entry.pieces)
    if elements != math.prod(entry.shape):
        raise CheckpointError(
            f"{name} {entry.shape} has {elements} of its {math.prod(entry.shape)} elements in the "
            "index: no rank wrote the others"
        )


def overlap(first: Box, second: Box) -> Box | None:
    """Return the intersection of two boxes; None if it is empty."""
    begin = [max(a, b) for a, b in zip(first[0], second[0], strict=True)]
    ends = zip(first[0], first[1], second[0], second[1], strict=True)
    shape = [min(a + n, b + m) - c for (a, n, b, m), c in zip(ends, begin, strict=True)]
    return (begin, shape) if all(n > 0 for n in shape) else None


def merge(rank_entries: Iterable[Mapping[str, StoredTensor]]) -> dict[str, StoredTensor]:
    """Merge the ranks' entries, and check that each element of every tensor was written once.

    Args:
        rank_entries: for each rank, an entry for every tensor of which it holds a slice; the
            entry's pieces are those that the rank wrote, perhaps none.

    Raises:
        CheckpointError: ranks disagree about a tensor's dtype or shape, or an element of a tensor
            was written by no rank or by two.
    """
    whole: dict[str, StoredTensor] = {}
    for entries in rank_entries:
        for name, entry in entries.items():
            merged = whole.setdefault(name, StoredTensor(entry.dtype, entry.shape, ()))
            if (merged.dtype, merged.shape) != (entry.dtype, entry.shape):
                raise CheckpointError(
                    f"ranks disagree about {name}: {merged.dtype}{merged.shape} or "
                    f"{entry.dtype}{entry.shape}; build one model on all of them"
                )
            whole[name] = StoredTensor(entry.dtype, entry.shape, merged.pieces + entry.pieces)
    for name, entry in whole.items():
        check(name, entry)
    return whole
