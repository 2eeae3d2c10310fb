"""The files of a checkpoint: each rank's pieces, in the safetensors format, which has no code."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from shardlab.training.checkpoint.index import (
    Box,
    CheckpointError,
    Index,
    Piece,
    StoredTensor,
    overlap,
)
from shardlab.training.checkpoint.slices import TensorSlice

try:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "shardlab.training.checkpoint writes and reads weights by the package safetensors, which "
        'isn\'t installed: pip install "shardbook[kernels]"'
    ) from missing

INDEX = "index.json"


def write(folder: Path, rank: int, slices: Sequence[TensorSlice]) -> dict[str, StoredTensor]:
    """Write this rank's pieces to a file in `folder` and sync it; return an entry for each tensor.

    A tensor that this rank holds and another rank writes has an entry without pieces, so that
    `index.merge` notices tensors that no rank writes.

    Raises:
        OSError: the file can't be written.
    """
    file = folder / f"rank-{rank:05}.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    entries: dict[str, StoredTensor] = {}
    for tensor_slice in slices:
        dtype, shape = dtype_name(tensor_slice.tensor.dtype), tuple(tensor_slice.tensor.shape)
        entry = entries.setdefault(tensor_slice.name, StoredTensor(dtype, tensor_slice.shape, ()))
        if not tensor_slice.writes:
            continue
        key = f"{tensor_slice.name}#{len(entry.pieces)}" if entry.pieces else ""
        piece = Piece(f"{folder.name}/{file.name}", tensor_slice.offset, shape, key)
        entries[tensor_slice.name] = StoredTensor(dtype, tensor_slice.shape, (*entry.pieces, piece))
        # A clone, because safetensors refuses tensors that share memory, such as views of a buffer.
        tensors[key or tensor_slice.name] = tensor_slice.tensor.cpu().clone(
            memory_format=torch.contiguous_format
        )
    save_file(tensors, file)
    sync_to_disk(file)
    sync_to_disk(folder)
    return entries


def check_files(root: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Refuse to commit an index whose files aren't in this folder.

    Raises:
        CheckpointError: a file is missing; names it.
    """
    files = {piece.file for tensor in tensors.values() for piece in tensor.pieces}
    if missing := sorted(file for file in files if not (root / file).is_file()):
        raise CheckpointError(
            f"{len(missing)} of {len(files)} shards are not in {root}, {missing[0]} for example: "
            "their ranks wrote them to a folder of another node; choose a folder that all ranks "
            "share"
        )


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or a folder's entries, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def commit(root: Path, content: bytes) -> None:
    """Replace the index by `content`, atomically: the checkpoint is the old or the new one."""
    draft = root / f"{INDEX}.draft"
    draft.write_bytes(content)
    sync_to_disk(draft)
    draft.replace(root / INDEX)
    sync_to_disk(root)


def remove_stale(root: Path, current: str) -> None:
    """Remove the shards that the index doesn't name, also those of interrupted saves."""
    for folder in root.glob("shards-*"):
        if folder.name != current:
            shutil.rmtree(folder, ignore_errors=True)


def dtype_name(dtype: torch.dtype) -> str:
    """Return "float64" for torch.float64."""
    return str(dtype).removeprefix("torch.")


class Reader:
    """Reads slices from a checkpoint's files, each from all pieces that overlap with it.

    Args:
        root: the checkpoint's folder.
        index: its checked index.
    """

    def __init__(self, root: Path, index: Index) -> None:
        """Start without open files."""
        self._root = root
        self._index = index
        self._files: dict[str, Any] = {}

    def prepare(self, slices: Iterable[TensorSlice]) -> None:
        """Check names, shapes, dtypes and files of slices, without reading their values.

        Raises:
            CheckpointError: a slice can't be read; says what differs.
        """
        for target in slices:
            name, shape, dtype = target.name, target.shape, dtype_name(target.tensor.dtype)
            entry = self._index.tensors.get(name)
            if entry is None:
                raise CheckpointError(
                    f"the checkpoint has no {name}; it has {_join_first(self._index.tensors)}"
                )
            if entry.shape != shape:
                raise CheckpointError(
                    f"{name} is {list(entry.shape)} in the checkpoint, {list(shape)} in this "
                    "model; make the model with the checkpoint's config"
                )
            if entry.dtype != dtype:
                raise CheckpointError(
                    f"{name} is {entry.dtype} in the checkpoint, {dtype} in this model; make the "
                    "model in that dtype, load, then convert"
                )
            for piece, _ in self._overlapping(target):
                self._check(name, piece, target.tensor.dtype)

    def read(self, slices: Iterable[TensorSlice]) -> None:
        """Fill the slices' tensors.

        Raises:
            CheckpointError: a file cannot be read.
        """
        for target in slices:
            for piece, shared in self._overlapping(target):
                target_index, source_index = (
                    tuple(slice(b - o, b - o + n) for b, n, o in zip(*shared, origin, strict=True))
                    for origin in (target.offset, piece.offset)
                )
                file, key = self._open(piece.file), piece.key or target.name
                try:
                    if source_index:
                        part = file.get_slice(key)[source_index]
                    else:  # a number without dimensions
                        part = file.get_tensor(key)
                except SafetensorError as error:
                    raise CheckpointError(f"{target.name} in {piece.file}: {error}") from None
                target.tensor[target_index].copy_(part)

    def _overlapping(self, target: TensorSlice) -> Iterator[tuple[Piece, Box]]:
        """Yield the pieces of the tensor that have elements of a slice, and the box of those."""
        for piece in self._index.tensors[target.name].pieces:
            box = (target.offset, target.tensor.shape)
            if shared := overlap((piece.offset, piece.shape), box):
                yield piece, shared

    def _check(self, name: str, piece: Piece, dtype: torch.dtype) -> None:
        file = self._open(piece.file)
        try:
            stored = file.get_slice(piece.key or name)
            shape = tuple(stored.get_shape())
        except SafetensorError as error:
            raise CheckpointError(f"{piece.file} should hold {name}: {error}") from None
        sample = torch.empty(0, dtype=dtype)
        if shape != piece.shape or stored.get_dtype() != _CODES.get(sample.dtype):
            raise CheckpointError(
                f"{name} in {piece.file} is {stored.get_dtype()} {list(shape)}; the index says "
                f"{dtype_name(dtype)} {list(piece.shape)}: the file is not of this save"
            )

    def _open(self, path: str) -> Any:
        if path not in self._files:
            self._files[path] = open_shard(self._root / path)
        return self._files[path]


def open_shard(file: Path) -> Any:
    """Open a file of safetensors, of which slices are read.

    Raises:
        CheckpointError: it is a link, missing or damaged.
    """
    if file.is_symlink() or file.parent.is_symlink():
        raise CheckpointError(f"{file} is a link; a checkpoint holds its own files")
    if not file.is_file():
        raise CheckpointError(
            f"the shard {file} is missing; copy the checkpoint with all its files"
        )
    try:
        return safe_open(file, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"the shard {file} is damaged: {error}") from None


_CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def _join_first(names: Any, limit: int = 6) -> str:
    listed = sorted(names)
    return ", ".join(listed[:limit]) + (", …" if len(listed) > limit else "")
