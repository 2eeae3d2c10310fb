"""The files of a checkpoint, each a rank's pieces, in the safetensors format: tensors, no code."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from shardlab.training.checkpoint.index import CheckpointError, Index, Piece, StoredTensor, overlap
from shardlab.training.checkpoint.parts import Held

INDEX = "index.json"


def write(folder: Path, rank: int, held: Sequence[Held]) -> dict[str, StoredTensor]:
    """Write this rank's pieces to a file in `folder`, to the disk; return an entry for each tensor.

    A tensor that this rank holds and other ranks write has an entry without pieces, so that
    `index.merge` finds a tensor that no rank writes.

    Raises:
        OSError: the disk's word.
    """
    file = folder / f"rank-{rank:05}.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    entries: dict[str, StoredTensor] = {}
    for box in held:
        dtype, shape = dtype_name(box.tensor.dtype), tuple(box.tensor.shape)
        known = entries.setdefault(box.name, StoredTensor(dtype, box.shape, ()))
        if not box.writes:
            continue
        key = f"{box.name}#{len(known.pieces)}" if known.pieces else ""
        piece = Piece(f"{folder.name}/{file.name}", box.offset, shape, key)
        entries[box.name] = StoredTensor(dtype, box.shape, (*known.pieces, piece))
        # A clone: safetensors refuses tensors that share memory, as views into one buffer do.
        tensors[key or box.name] = box.tensor.cpu().clone(memory_format=torch.contiguous_format)
    save_file(tensors, file)
    settle(file)
    settle(folder)
    return entries


def demand_files(root: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Refuse to commit an index of files that are not in this folder.

    Raises:
        CheckpointError: names a missing file.
    """
    files = {piece.file for tensor in tensors.values() for piece in tensor.pieces}
    if missing := sorted(file for file in files if not (root / file).is_file()):
        raise CheckpointError(
            f"{len(missing)} of {len(files)} shards are not in {root}, {missing[0]} for example: "
            "their ranks wrote them to a folder of another node; choose a folder that all ranks "
            "share"
        )


def settle(path: Path) -> None:
    """Wait until a file or a folder's entries are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def commit(root: Path, content: bytes) -> None:
    """Make `content` the index in one step: before it the old checkpoint is there, then the new."""
    draft = root / f"{INDEX}.draft"
    draft.write_bytes(content)
    settle(draft)
    draft.replace(root / INDEX)
    settle(root)


def sweep(root: Path, current: str) -> None:
    """Remove the shards that no index names any more, those of saves that were cut short too."""
    for folder in root.glob("shards-*"):
        if folder.name != current:
            shutil.rmtree(folder, ignore_errors=True)


def dtype_name(dtype: torch.dtype) -> str:
    """Return "float64" for torch.float64."""
    return str(dtype).removeprefix("torch.")


class Reader:
    """Reads boxes out of a checkpoint's files, from as many pieces as it takes.

    Args:
        root: the checkpoint.
        index: its index, checked.
    """

    def __init__(self, root: Path, index: Index) -> None:
        """Open nothing yet."""
        self._root = root
        self._index = index
        self._files: dict[str, Any] = {}

    def prepare(self, held: Held) -> None:
        """Check that a box can be read: names, shape, dtype, files; reads no values.

        Raises:
            CheckpointError: says what differs.
        """
        entry = self._index.tensors.get(held.name)
        if entry is None:
            raise CheckpointError(
                f"the checkpoint has no {held.name}; it has {_some(self._index.tensors)}"
            )
        if entry.shape != held.shape:
            raise CheckpointError(
                f"{held.name} is {list(entry.shape)} in the checkpoint, {list(held.shape)} in this "
                "model; make the model with the checkpoint's config"
            )
        if entry.dtype != dtype_name(held.tensor.dtype):
            raise CheckpointError(
                f"{held.name} is {entry.dtype} in the checkpoint, "
                f"{dtype_name(held.tensor.dtype)} in this model; make the model in that dtype, "
                "load, then convert"
            )
        for piece in entry.pieces:
            if overlap((piece.offset, piece.shape), (held.offset, held.tensor.shape)):
                self._check(held.name, piece, held.tensor.dtype)

    def read(self, held: Held) -> None:
        """Fill `held.tensor`.

        Raises:
            CheckpointError: a file cannot be read.
        """
        for piece in self._index.tensors[held.name].pieces:
            shared = overlap((piece.offset, piece.shape), (held.offset, held.tensor.shape))
            if shared is None:
                continue
            here, there = (
                tuple(slice(b - o, b - o + n) for b, n, o in zip(*shared, origin, strict=True))
                for origin in (held.offset, piece.offset)
            )
            file = self._open(piece.file)
            try:
                key = piece.key or held.name
                part = file.get_slice(key)[there] if there else file.get_tensor(key)
            except SafetensorError as error:
                raise CheckpointError(f"{held.name} in {piece.file}: {error}") from None
            held.tensor[here].copy_(part)

    def _check(self, name: str, piece: Piece, dtype: torch.dtype) -> None:
        file = self._open(piece.file)
        try:
            found = file.get_slice(piece.key or name)
            shape = tuple(found.get_shape())
        except SafetensorError as error:
            raise CheckpointError(f"{piece.file} should hold {name}: {error}") from None
        sample = torch.empty(0, dtype=dtype)
        if shape != piece.shape or found.get_dtype() != _CODES.get(sample.dtype):
            raise CheckpointError(
                f"{name} in {piece.file} is {found.get_dtype()} {list(shape)}; the index says "
                f"{dtype_name(dtype)} {list(piece.shape)}: the file is not of this save"
            )

    def _open(self, path: str) -> Any:
        if path not in self._files:
            file = self._root / path
            if file.is_symlink() or file.parent.is_symlink():
                raise CheckpointError(f"{file} is a link; a checkpoint holds its own files")
            if not file.is_file():
                raise CheckpointError(
                    f"the shard {file} is missing; copy the checkpoint with all its files"
                )
            try:
                self._files[path] = safe_open(file, framework="pt", device="cpu")
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"the shard {file} is damaged: {error}") from None
        return self._files[path]


_CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def _some(names: Any, most: int = 6) -> str:
    listed = sorted(names)
    return ", ".join(listed[:most]) + (", …" if len(listed) > most else "")
