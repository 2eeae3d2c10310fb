"""Weights in and out: safetensors and config.json of Llama and Qwen2, as transformers has them.

    config = read_config(folder, dtype=torch.bfloat16)
    model = GPT(config, tensor=grid.tensor, device="meta", …)
    from_hf(folder, model=model, grid=grid)   # each parameter reads its own rows when it is needed
    model = FSDP(model, grid.replicas, …)
    to_hf(folder, model=model, grid=grid)

Two matrices differ. Our QKV has the rows of three of theirs, group by group; our fc1 those of gate
and up, pair by pair. Both are units of rows: one group, one pair. A rank reads only the units that
its slice needs. Writing gathers a unit of FSDP, or a parameter, at a time, into a file for each
block, so no rank ever holds the whole model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from shardlab.comm.collective_errors import raise_on_all_ranks
from shardlab.fsdp import FSDP
from shardlab.gpt.config import LLAMA, GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import sharding_of, whole
from shardlab.training.checkpoint import shards
from shardlab.training.checkpoint.index import MAX_BYTES, CheckpointError
from shardlab.training.checkpoint.parameter_runs import model_of, names_of_copies

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
KINDS = {"llama": False, "mistral": False, "qwen2": True}  # whether QKV has a bias
SIZES = {
    "layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "ffn": "intermediate_size", "vocab": "vocab_size",
    "sequence": "max_position_embeddings",
}  # fmt: skip
NAMES = {
    "word_embedding.weight": "model.embed_tokens.weight", "head.weight": "lm_head.weight",
    "final_norm.weight": "model.norm.weight", "norm1.weight": "input_layernorm.weight",
    "norm2.weight": "post_attention_layernorm.weight",
    "attention.proj.weight": "self_attn.o_proj.weight", "mlp.fc2.weight": "mlp.down_proj.weight",
}  # fmt: skip


class Source(NamedTuple):
    """The tensors that make up one of our parameters, and the rows of each in a unit."""

    names: tuple[str, ...]
    rows: tuple[int, ...]


def read_config(folder: Path | str, **changes: Any) -> GPTConfig:
    """Return the config of the model in `folder`, with `changes` such as `dtype`.

    Raises:
        CheckpointError: the folder has no config.json, or of a model that differs from a Llama.
    """
    found = _read_json(Path(folder) / "config.json")
    kind, rope = found.get("model_type"), found.get("rope_parameters") or {}
    scaling = found.get("rope_scaling") or {}
    head = found.get("head_dim") or 0
    refused = {
        f"model_type {kind!r}; choose {', '.join(KINDS)}": kind not in KINDS,
        "hidden_act other than silu": found.get("hidden_act", "silu") != "silu",
        "attention_bias or mlp_bias": found.get("attention_bias") or found.get("mlp_bias"),
        "a sliding_window": found.get("sliding_window") and found.get("use_sliding_window", True),
        "scaled rope": {rope.get("rope_type", "default"), scaling.get("rope_type", "default")}
        != {"default"},
        "experts": found.get("num_local_experts") or found.get("num_experts"),
    }
    if wrong := [what for what, refuse in refused.items() if refuse]:
        raise CheckpointError(f"{folder} is a model with {wrong[0]}: shardlab has no such block")
    try:
        sizes: dict[str, Any] = {ours: int(found[theirs]) for ours, theirs in SIZES.items()}
        if head and head * sizes["heads"] != sizes["hidden"]:
            raise CheckpointError(f"{folder} has heads of {head} features, not hidden / heads")
        return GPTConfig(
            **LLAMA | sizes | {
                "tie_embeddings": bool(found.get("tie_word_embeddings", False)),
                "norm_eps": float(found.get("rms_norm_eps", 1e-6)),
                "rope_base": float(rope.get("rope_theta") or found.get("rope_theta", 10_000.0)),
                "qkv_bias": KINDS[str(kind)] or None,
            } | changes
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder}/config.json is not a model's: {error!r}") from None


def write_config(config: GPTConfig) -> dict[str, Any]:
    """Return the config.json of a model.

    Raises:
        CheckpointError: transformers has no such model.
    """
    plain = {name: getattr(config, name) for name in ("norm", "position", "mlp", "bias")}
    if config.experts or plain != {name: LLAMA[name] for name in plain}:
        raise CheckpointError(f"only GPTConfig(**LLAMA) is a model of transformers, not {plain}")
    kind = "qwen2" if config.qkv_bias else "llama"
    sizes = {theirs: getattr(config, ours) for ours, theirs in SIZES.items()}
    return {
        **sizes, "num_key_value_heads": config.groups, "intermediate_size": config.ffn_width,
        "model_type": kind, "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "hidden_act": "silu", "rms_norm_eps": config.norm_eps, "rope_theta": config.rope_base,
        "tie_word_embeddings": config.tie_embeddings,
        "torch_dtype": shards.dtype_name(config.dtype),
    }  # fmt: skip


def from_hf(
    folder: Path | str, *, model: nn.Module | Sequence[nn.Module], grid: Grid
) -> None:  # fmt: skip
    """Fill this rank's pieces of a `GPT`; those on meta read when FSDP draws them.

    Raises:
        CheckpointError: on every rank: a tensor is missing, damaged, or of another shape.
    """
    root, chunks = Path(folder), [model] if isinstance(model, nn.Module) else list(model)
    axis = grid.axis("tensor", "context", "data", "pipeline")
    device = torch.device("cpu")
    with raise_on_all_ranks(axis, device, "read its slices", CheckpointError), torch.no_grad():
        files = _Files(root)
        for chunk in chunks:
            config: GPTConfig = chunk.config  # type: ignore[assignment]
            for name, parameter in chunk.named_parameters():
                rows = files.rows_of(name, parameter, config)
                if parameter.is_meta:
                    parameter.rows = rows  # type: ignore[attr-defined]
                else:
                    parameter.copy_(rows(range(len(parameter))))


def to_hf(
    folder: Path | str, *, model: nn.Module | Sequence[nn.Module], grid: Grid
) -> None:  # fmt: skip
    """Write a `GPT`, plain or in FSDP, for transformers; every rank must call this.

    Raises:
        CheckpointError: on every rank: transformers has no such model, or a file can't be written.
    """
    root, chunks = Path(folder), [model] if isinstance(model, nn.Module) else list(model)
    axis = grid.axis("tensor", "context", "data", "pipeline")
    config: GPTConfig = model_of(chunks[0]).config  # type: ignore[assignment]
    with raise_on_all_ranks(axis, torch.device("cpu"), "write its files", CheckpointError):
        settings = write_config(config)
        root.mkdir(parents=True, exist_ok=True)
        for chunk in chunks:
            copied = names_of_copies(chunk)
            writes = grid.tensor.rank == 0 and grid.replicas.rank == 0
            for file, named in groupby(_iterate_whole(chunk), lambda pair: file_of(pair[0])):
                tensors = {
                    theirs: part
                    for name, tensor in named
                    for theirs, part in split(name, tensor, config).items()
                    if writes and name not in copied
                }
                if tensors:
                    save_file(tensors, root / file, metadata={"format": "pt"})
        if axis.rank == 0:
            (root / "config.json").write_text(json.dumps(settings, indent=2), "utf-8")
            names = _list_names(config)
            files = {theirs: file_of(n) for n in names for theirs in source_of(n, config).names}
            index = {"metadata": {}, "weight_map": files}
            (root / INDEX).write_text(json.dumps(index, indent=2), "utf-8")


def source_of(name: str, config: GPTConfig) -> Source:
    """Return the tensors of one of our parameters, by its name in the whole model."""
    layer, _, inner = name.removeprefix("layers.").partition(".")
    prefix = f"model.layers.{layer}."
    if not name.startswith("layers."):
        return Source((NAMES[name],), (1,))
    kind = inner.rpartition(".")[2]  # weight or bias
    if inner.startswith("attention.qkv."):
        head, queries = config.hidden // config.heads, config.heads // config.groups
        names = tuple(f"{prefix}self_attn.{x}_proj.{kind}" for x in "qkv")
        return Source(names, (queries * head, head, head))
    if inner == "mlp.fc1.weight":
        return Source(tuple(f"{prefix}mlp.{x}_proj.weight" for x in ("gate", "up")), (1, 1))
    return Source((prefix + NAMES[inner],), (1,))


def split(name: str, tensor: Tensor, config: GPTConfig) -> dict[str, Tensor]:
    """Return transformers' tensors of one whole parameter."""
    source = source_of(name, config)
    units = tensor.view(-1, sum(source.rows), *tensor.shape[1:])
    parts = units.split_with_sizes(source.rows, 1)
    return {
        theirs: part.reshape(-1, *tensor.shape[1:]).contiguous()
        for theirs, part in zip(source.names, parts, strict=True)
    }


def file_of(name: str) -> str:
    """Return the file that `to_hf` writes a parameter to: one for each block, and the others."""
    block = re.match(r"layers\.\d+", name)
    return f"model-{block[0] if block else name.partition('.')[0]}.safetensors"


def _list_names(config: GPTConfig) -> Iterable[str]:
    inner = [*[*NAMES][3:], "attention.qkv.weight", "mlp.fc1.weight"]
    inner += ["attention.qkv.bias"] * bool(config.qkv_bias)
    yield from (f"layers.{i}.{name}" for i in range(config.layers) for name in inner)
    tied = {"head.weight"} if config.tie_embeddings else set()
    yield from (name for name in [*NAMES][:3] if name not in tied)


def _iterate_whole(chunk: nn.Module) -> Iterator[tuple[str, Tensor]]:
    if isinstance(chunk, FSDP):
        return chunk.iterate_whole_parameters()
    return ((name, whole(p).detach()) for name, p in chunk.named_parameters())


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CheckpointError(f"{path} is larger than {MAX_BYTES} bytes: no index or config")
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} can't be read: {error}") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is no JSON object")
    return found


class _Files:
    """The safetensors files of a folder, opened when they are first read."""

    def __init__(self, root: Path) -> None:
        self._root, self._open = root, dict[str, Any]()
        self._map: dict[str, Any] = {}
        if not (root / SINGLE).is_file():
            self._map = _read_json(root / INDEX).get("weight_map") or {}

    def rows_of(self, name: str, parameter: nn.Parameter, config: GPTConfig) -> Any:
        """Return the function that reads rows of this rank's slice of a parameter.

        Raises:
            CheckpointError: a tensor is missing, or has another shape than the parameter.
        """
        source, cut = source_of(name, config), sharding_of(parameter)
        shape = list(parameter.shape)
        begin, columns = 0, slice(None)
        if cut is not None:
            begin = cut.axis.rank * shape[cut.dim]
            if cut.dim == 1:
                begin, columns = 0, slice(begin, begin + shape[1])
            shape[cut.dim] = cut.size
        unit = sum(source.rows)
        for theirs, rows in zip(source.names, source.rows, strict=True):
            expected = [shape[0] // unit * rows, *shape[1:]]
            if (actual := self._slice(theirs).get_shape()) != expected:
                raise CheckpointError(f"{theirs} is {actual}, expected {expected} of this config")

        def read(wanted: range) -> Tensor:
            start, stop = (min(begin + end, shape[0]) for end in (wanted.start, wanted.stop))
            first, last = start // unit, -(-stop // unit)
            parts = []
            for theirs, rows in zip(source.names, source.rows, strict=True):
                where: Any = (slice(first * rows, last * rows), *[columns] * (len(shape) - 1))
                part = self._slice(theirs)[where]
                parts.append(part.view(-1, rows, *part.shape[1:]))
            joined = torch.cat(parts, 1).flatten(0, 1)[start - first * unit : stop - first * unit]
            values = torch.zeros(len(wanted), *joined.shape[1:], dtype=parameter.dtype)
            values[: len(joined)] = joined  # padding of a vocabulary follows
            return values

        return read

    def _slice(self, name: str) -> Any:
        file = str(self._map.get(name, SINGLE))
        if not re.fullmatch(r"[\w.-]+\.safetensors", file):
            raise CheckpointError(f"{name} is in {file!r}: not a file of this folder")
        if file not in self._open:
            self._open[file] = shards.open_shard(self._root / file)
        if name not in self._open[file].keys():  # noqa: SIM118  a file of safetensors
            raise CheckpointError(f"{self._root} has no {name}")
        return self._open[file].get_slice(name)
