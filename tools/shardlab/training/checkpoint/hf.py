"""Weights of Llama, Qwen and Mistral, from and to Hugging Face's `config.json` and safetensors.

    config = read_config("Llama-3-8B")
    model = GPT(config, tensor=grid.tensor, stage=grid.pipeline.rank, stages=grid.pipeline.size)
    from_hf("Llama-3-8B", model=model, grid=grid)
    …
    to_hf("trained", model=model, grid=grid)

A rank reads only its slices of the files, one parameter at a time, and `to_hf` gathers one
parameter at a time over the tensor axis. No rank holds the whole model.

Two layouts differ. transformers has a matrix each for queries, keys and values, and here the rows
of one matrix lie group by group. transformers has `gate_proj` and `up_proj`, and here their rows
alternate. `hf_views` therefore returns, for a parameter or any rank's slice of it, a view for each
tensor of transformers. Rope rotates the same pairs of features, (i, i + D/2), in both.

The files run no code: the settings are JSON, the weights safetensors.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import log, prod
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.comm.collective_errors import raise_on_all_ranks
from shardlab.fsdp import FSDP
from shardlab.gpt.config import LLAMA, GPTConfig
from shardlab.gpt.model import GPT
from shardlab.gpt.rope import ROPE_KEYS, YARN_KEYS, RopeScaling
from shardlab.grid.grid import DENSE, Grid
from shardlab.layers.sharding import sharding_of, whole
from shardlab.training.checkpoint.shards import sync_to_disk
from shardlab.training.checkpoint.slices import model_of, names_of_copies
from shardlab.training.masters import master_of, round_masters

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
NAMES = {
    "word_embedding": ["embed_tokens"],
    "final_norm": ["norm"],
    "norm1": ["input_layernorm"],
    "norm2": ["post_attention_layernorm"],
    "attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "attention.q_norm": ["self_attn.q_norm"],
    "attention.k_norm": ["self_attn.k_norm"],
    "attention.proj": ["self_attn.o_proj"],
    "mlp.fc1": ["mlp.gate_proj", "mlp.up_proj"],
    "mlp.fc2": ["mlp.down_proj"],
}
MODELS = {
    "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
    "mistral": "MistralForCausalLM",
}  # fmt: skip
DTYPES = ("float32", "bfloat16", "float16", "float64")
# What a config.json may ask for, where shardlab has one way only. The first value is the default.
ONLY: dict[str, tuple[Any, ...]] = {
    "model_type": tuple(MODELS), "architectures": tuple([name] for name in MODELS.values()),
    "torch_dtype": DTYPES, "hidden_act": ("silu",), "attention_bias": (False,),
    "attention_dropout": (0,), "mlp_bias": (False,), "pretraining_tp": (1,),
    "use_mrope": (False,),
}  # fmt: skip
IGNORED = {  # of no effect on weights and logits
    "_name_or_path", "bos_token_id", "eos_token_id", "max_window_layers", "pad_token_id",
    "transformers_version", "use_cache",
}  # fmt: skip
Count: TypeAlias = Annotated[int, msgspec.Meta(gt=0)]
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


MSCALES = {"mscale", "mscale_all_dim"}  # DeepSeek's form of yarn's attention_factor


class HFError(RuntimeError):
    """A folder of Hugging Face's format can't be read into this model, or written from it."""


class Settings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The settings of GPTConfig that config.json has, with its names of them."""

    layers: Count = msgspec.field(name="num_hidden_layers")
    hidden: Count = msgspec.field(name="hidden_size")
    heads: Count = msgspec.field(name="num_attention_heads")
    kv_heads: Count | None = msgspec.field(name="num_key_value_heads", default=None)
    head_size: Count | None = msgspec.field(name="head_dim", default=None)
    ffn: Count = msgspec.field(name="intermediate_size")
    vocab: Count = msgspec.field(name="vocab_size")
    sequence: Count = msgspec.field(name="max_position_embeddings")
    tie_embeddings: bool = msgspec.field(name="tie_word_embeddings", default=False)
    norm_eps: Positive = msgspec.field(name="rms_norm_eps")
    rope_base: Positive = msgspec.field(name="rope_theta", default=10_000.0)
    init_std: Positive = msgspec.field(name="initializer_range", default=0.02)


def read_config(folder: Path | str) -> GPTConfig:
    """Return the model that a folder's `config.json` describes.

    Raises:
        HFError: there is no such file, or it asks for something that shardlab's block doesn't do;
            names the key.
    """
    file = Path(folder) / CONFIG
    try:
        keys = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        scaling = _read_rope(keys)
        keys["torch_dtype"] = dtype = keys.pop("dtype", keys.get("torch_dtype")) or DTYPES[0]
        kind = keys.get("model_type")
        window, layers = _read_window(keys), keys.pop("layer_types", None) or []
        for key, allowed in ONLY.items():
            value = keys.pop(key, allowed[0])
            options = " or ".join(msgspec.json.encode(option).decode() for option in allowed)
            _require(value in allowed, f"{key} = {value!r} isn't supported, only {options}")
        keys = {key: value for key, value in keys.items() if key not in IGNORED}
        settings = msgspec.structs.asdict(msgspec.convert(keys, Settings))
        _require({*layers} <= {"full_attention", "sliding_attention"}, f"layer_types = {layers!r}")
        if window is not None and (not layers or "sliding_attention" in layers):
            _require(
                settings["sequence"] <= window,
                f"sliding_window = {window} is shorter than max_position_embeddings = "
                f"{settings['sequence']}, and shardlab's attention is full: for sequences of at "
                f"most {window} tokens both are equal, so set max_position_embeddings to {window}",
            )
        if settings["head_size"] == settings["hidden"] / settings["heads"]:
            settings["head_size"] = None
        return GPTConfig(
            **LLAMA | settings, rope_scaling=scaling, qk_norm=kind == "qwen3",
            qkv_bias=kind == "qwen2" or None, dtype=getattr(torch, dtype),
        )  # fmt: skip
    except (
        OSError,
        ValueError,
        TypeError,
        ArithmeticError,
        msgspec.MsgspecError,
        HFError,
    ) as error:
        raise HFError(f"{file}: {error}") from None


def _read_rope(keys: dict[str, Any]) -> RopeScaling | None:
    """Take rope's settings out of `keys`, in the form of transformers 4 or 5; leave rope_theta."""
    rope = keys.pop("rope_scaling", None) or keys.get("rope_parameters") or {}
    keys.pop("rope_parameters", None)
    _require(isinstance(rope, dict), "rope_parameters is no object")
    kind = rope.pop("rope_type", rope.pop("type", "default"))
    keys["rope_theta"] = rope.pop("rope_theta", keys.get("rope_theta", 10_000.0))
    given = {key: value for key, value in rope.items() if value is not None}
    known: dict[Any, set[str]] = {"default": set(), **ROPE_KEYS}
    _require(kind in known, f"rope_type = {kind!r} isn't supported, only {', '.join(known)}")
    further = YARN_KEYS | MSCALES if kind == "yarn" else set()
    words = f"{kind} rope has {', '.join(sorted(given)) or 'no settings'}, and here it takes "
    words += ", ".join(sorted(known[kind])) or "none"
    words += f", and perhaps {', '.join(sorted(further))}" if further else ""
    _require(known[kind] <= given.keys() <= known[kind] | further, words)
    if kind == "default":
        return None
    scales = [given.pop(name, 0) for name in sorted(MSCALES)]
    scaling = msgspec.convert({"rope_type": kind, **given}, RopeScaling)
    if all(scales) and scaling.attention_factor is None:
        once, all_dims = (1 + 0.1 * scale * log(scaling.factor) for scale in scales)
        scaling = replace(scaling, attention_factor=once / all_dims)
    return scaling


def _read_window(keys: dict[str, Any]) -> int | None:
    """Take the sliding window out of `keys`, with the default of each model in transformers."""
    kind = keys.get("model_type")
    window: int | None = keys.pop("sliding_window", 4096 if kind == "mistral" else None)
    return window if keys.pop("use_sliding_window", kind not in ("qwen2", "qwen3")) else None


def from_hf(path: Path | str, *, model: nn.Module | Sequence[nn.Module], grid: Grid) -> None:
    """Load this rank's slices of a model in Hugging Face's format; every rank must call this.

    All files are checked before any value is written, so a load that is refused doesn't change the
    model. A tensor in a dtype that the model's holds exactly is converted, such as bf16 to fp32.

    Args:
        path: the folder, with `config.json` and `model.safetensors`, or several files with their
            `model.safetensors.index.json`.
        model: this rank's stage, a `GPT` of `read_config(path)`, or its pieces under an interleaved
            schedule. On meta, FSDP reads the slices of each of its shards when it is made.
        grid: the process grid.

    Raises:
        HFError: on every rank: a file is missing or damaged, a tensor is missing, unknown or of
            another shape, or the model has other settings than the folder's.
    """
    root, everyone = Path(path), grid.axis(*DENSE)
    chunks = [model] if isinstance(model, nn.Module) else list(model)
    with raise_on_all_ranks(everyone, grid.device, "read the weights", HFError):
        wrapped = any(isinstance(chunk, FSDP) for chunk in chunks)
        _require(not wrapped, "load the model before FSDP wraps it, or make it on meta")
        config = _config_of(chunks)
        stored, current = describe(read_config(root)), describe(config)
        differ = [
            f"{key} = {stored[key]} (here {current[key]})"
            for key in sorted(stored.keys() - {"torch_dtype", "initializer_range"})
            if stored[key] != current[key]
        ]
        _require(not differ, f"{root} is another model: {', '.join(differ)}")
        parameters = [(name, p) for chunk in chunks for name, p in chunk.named_parameters()]
        files = _open_files(root, shapes_of(config), master_of(parameters[0][1]).dtype)
    with raise_on_all_ranks(everyone, grid.device, "read its slices", HFError), torch.no_grad():
        for name, parameter in parameters:
            read = partial(_read, name, parameter, config, files)
            if parameter.is_meta:
                parameter.rows = partial(_rows, read)  # type: ignore[attr-defined]
            else:
                master_of(parameter).copy_(read())
        round_masters(parameter for _, parameter in parameters)


def to_hf(
    path: Path | str, *, model: nn.Module | Sequence[nn.Module], grid: Grid,
    max_bytes: int = 5 << 30,
) -> None:  # fmt: skip
    """Write a model in Hugging Face's format; every rank must call this.

    The folder appears as a whole, by one rename, or not at all. The tokenizer's files and
    `generation_config.json` are the caller's to copy.

    Args:
        path: a folder that all ranks share. It must not exist, or be empty.
        model: this rank's stage, a `GPT` with a Llama's or Qwen2's settings, plain or in FSDP; or
            its pieces, under an interleaved schedule.
        grid: the process grid.
        max_bytes: the size at which a stage begins another file.

    Raises:
        HFError: on every rank: transformers has no such model, the folder isn't empty, or a file
            can't be written.
    """
    root, everyone = Path(path).absolute(), grid.axis(*DENSE)
    chunks = [model] if isinstance(model, nn.Module) else list(model)
    token = torch.tensor([secrets.randbits(62)], device=grid.device)
    draft = root.with_name(f"{root.name}.draft-{int(everyone.broadcast(token)):016x}")
    try:
        with raise_on_all_ranks(everyone, grid.device, "write the weights", HFError):
            settings = describe(_config_of(chunks))
            if everyone.rank == 0:
                empty = not root.exists() or (root.is_dir() and not any(root.iterdir()))
                _require(empty, f"{root} exists and isn't empty: choose another folder")
                draft.mkdir(parents=True)
        tensors, failure = _whole_tensors(chunks, grid), None
        if grid.tensor.rank == grid.replicas.rank == 0:
            for number, batch in enumerate(_collect(tensors, max_bytes)):
                try:
                    file = draft / f"stage-{grid.pipeline.rank:05}-{number:05}.safetensors"
                    if not failure:
                        save_file(batch, file, {"format": "pt"})
                        sync_to_disk(file)
                except Exception as error:  # and gather on, as the other ranks do
                    failure = error
        for _ in tensors:
            pass
        with raise_on_all_ranks(everyone, grid.device, "write its weights", HFError):
            if failure:
                raise failure
        with raise_on_all_ranks(everyone, grid.device, "complete the folder", HFError):
            if everyone.rank == 0:
                _complete(draft, settings, shapes_of(_config_of(chunks)))
                draft.rename(root)
                sync_to_disk(root.parent)
    finally:
        if everyone.rank == 0:
            shutil.rmtree(draft, ignore_errors=True)


def hf_views(name: str, tensor: Tensor, config: GPTConfig) -> dict[str, Tensor]:
    """Return views of a parameter, or of a slice of it, by the names of transformers' tensors.

    A view's leading dims, flattened, are the rows of transformers' tensor.
    """
    module, _, kind = name.rpartition(".")
    if module == "head":
        return {"lm_head.weight": tensor}
    prefix = "model."
    if module.startswith("layers."):
        _, layer, module = module.split(".", 2)
        prefix = f"model.layers.{layer}."
    parts: Sequence[Tensor] = [tensor]
    if module == "attention.qkv":
        queries = config.heads // config.groups
        fused = tensor.view(-1, queries + 2, config.head, *tensor.shape[1:])
        parts = fused.split_with_sizes([queries, 1, 1], 1)
    elif module == "mlp.fc1":
        parts = tensor.view(-1, 2, *tensor.shape[1:]).split_with_sizes([1, 1], 1)
    names = [f"{prefix}{module}.{kind}" for module in NAMES[module]]
    return dict(zip(names, parts, strict=True))


def shapes_of(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of the whole model, by transformers' names."""
    model = GPT(config, tensor=Axis.alone(), device="meta")
    return {
        name: (view.numel() // prod(p.shape[1:]), *p.shape[1:])
        for ours, p in model.named_parameters()
        for name, view in hf_views(ours, p, config).items()
    }


def describe(config: GPTConfig) -> dict[str, Any]:
    """Return the `config.json` of a model.

    Raises:
        HFError: transformers has no Llama, Qwen2 or Qwen3 with these settings.
    """
    needed = LLAMA | {"experts": None, "tie_embeddings": config.tie_embeddings}
    wrong = [f"{k} = {getattr(config, k)!r}" for k in needed if getattr(config, k) != needed[k]]
    _require(
        not wrong,
        f"{', '.join(wrong)}: only GPTConfig(**LLAMA, …) has the layout of transformers' Llama, "
        "with qkv_bias=True that of its Qwen2, and with qk_norm=True that of its Qwen3",
    )
    values = {name: getattr(config, name) for name in Settings.__struct_fields__}
    values |= {"ffn": config.ffn_width, "kv_heads": config.groups, "head_size": config.head}
    kind = "qwen3" if config.qk_norm else "qwen2" if config.qkv_bias else "llama"
    _require(not (config.qk_norm and config.qkv_bias), "qk_norm with qkv_bias is no model's")
    fixed = {"architectures": [MODELS[kind]], "model_type": kind, "hidden_act": "silu"}
    dtype = str(config.dtype).removeprefix("torch.")
    scaling = config.rope_scaling
    rope: dict[str, Any] = {}
    if scaling:
        further = YARN_KEYS if scaling.rope_type == "yarn" else set()
        keys = ROPE_KEYS[scaling.rope_type] | {"rope_type"} | further
        rope = {k: x for k in sorted(keys) if (x := getattr(scaling, k)) is not None}
    return {
        **fixed, **msgspec.to_builtins(Settings(**values)), "torch_dtype": dtype,
        "rope_scaling": rope or None,
    }  # fmt: skip


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise HFError(message)


def _config_of(chunks: Sequence[nn.Module]) -> GPTConfig:
    model = model_of(chunks[0])
    if not isinstance(model, GPT):
        raise HFError(f"{type(model).__name__} is no GPT of shardlab's")
    return model.config


def _open_files(
    root: Path, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype
) -> dict[str, Any]:
    """Return the open file of each tensor, once names, shapes and dtypes are checked."""
    places = None
    if not (root / WEIGHTS).is_file():
        try:
            content = msgspec.json.decode((root / INDEX).read_bytes(), type=dict[str, Any])
            places = msgspec.convert(content.get("weight_map"), dict[str, str])
        except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
            raise HFError(f"{root} has no {WEIGHTS}, and {INDEX} can't be read: {error}") from None
    files: dict[str, Any] = {}
    for file in [WEIGHTS] if places is None else sorted({*places.values()}):
        inside = Path(file).name == file and file.endswith(".safetensors")
        _require(inside, f"{INDEX} names {file!r}, which is no safetensors file of this folder")
        try:
            opened: Any = safe_open(root / file, framework="pt", device="cpu")
        except (SafetensorError, OSError) as error:
            raise HFError(f"{root / file} is missing or damaged: {error}") from None
        for name in opened.keys():  # noqa: SIM118  (it is no dict)
            if name.endswith("rotary_emb.inv_freq"):  # old files hold what is computed
                continue
            _require(name in shapes, f"{root / file} has {name}, which the model has not")
            place = file if places is None else places.get(name)
            _require(place == file, f"{root / file} has {name}, and {INDEX} says {place}")
            shape, kind = opened.get_slice(name).get_shape(), opened.get_slice(name)[:0].dtype
            words = f"{name} is {shape} in {root}, {list(shapes[name])} in the model"
            _require(tuple(shape) == shapes[name], words)
            exact = str(kind)[6:] in DTYPES and torch.promote_types(kind, dtype) == dtype
            words = f"{name} is {kind}, which {dtype} can't hold: make the model in another dtype"
            _require(exact, words)
            files[name] = opened
    lost = sorted(shapes.keys() - files.keys())
    _require(not lost, f"{root} lacks {len(lost)} tensors: {', '.join(lost[:6])}")
    return files


def _read(
    name: str, parameter: nn.Parameter, config: GPTConfig, files: Mapping[str, Any]
) -> Tensor:
    """Return the values of this rank's slice of a parameter, on the CPU."""
    sharding = sharding_of(parameter)
    local = torch.zeros(parameter.shape, dtype=master_of(parameter).dtype, device="cpu")
    for key, view in hf_views(name, local, config).items():
        stored, part = files[key].get_slice(key), view
        index = [slice(None)] * local.dim()
        if sharding:
            end = stored.get_shape()[sharding.dim]
            length = view.numel() * local.shape[sharding.dim] // local.numel()
            begin = sharding.axis.rank * length
            if end < begin + length:  # the padding of the vocabulary stays zero
                part = view[: max(end - begin, 0)]
            index[sharding.dim] = slice(begin, min(begin + length, end))
        if part.numel():
            part.copy_(stored[tuple(index)].view(part.shape))
    return local


def _rows(read: Callable[[], Tensor], wanted: range) -> Tensor:
    return read()[wanted.start : wanted.stop]


def _whole_tensors(chunks: Sequence[nn.Module], grid: Grid) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of this stage that it writes, by transformers' names."""
    for chunk in chunks:
        copies = names_of_copies(chunk)
        pairs: Iterator[tuple[str, Tensor]] = iter(())
        if isinstance(chunk, FSDP):
            pairs = chunk.iterate_whole_parameters()
        elif grid.replicas.rank == 0:
            pairs = ((name, whole(p)) for name, p in chunk.named_parameters())
        for name, tensor in pairs:
            if name not in copies:
                for key, view in hf_views(name, tensor, _config_of(chunks)).items():
                    yield key, view.reshape(-1, *tensor.shape[1:])


def _collect(tensors: Iterator[tuple[str, Tensor]], limit: int) -> Iterator[dict[str, Tensor]]:
    """Yield copies of the tensors, in batches of at most `limit` bytes, or of one tensor."""
    batch: dict[str, Tensor] = {}
    for key, tensor in tensors:
        if batch and sum(t.nbytes for t in batch.values()) + tensor.nbytes > limit:
            yield batch
            batch = {}
        # A clone, because safetensors refuses tensors that share memory.
        batch[key] = tensor.cpu().clone(memory_format=torch.contiguous_format)
    if batch:
        yield batch


def _complete(draft: Path, settings: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Give the files their final names, write index and settings, and check that all is there."""
    files = sorted(draft.glob("*.safetensors"))
    places: dict[str, str] = {}
    for number, file in enumerate(files, 1):
        name = WEIGHTS if len(files) == 1 else f"model-{number:05}-of-{len(files):05}.safetensors"
        with safe_open(file, framework="pt") as opened:
            places |= dict.fromkeys(opened.keys(), name)
        file.rename(draft / name)
    texts, dtype = {CONFIG: settings}, getattr(torch, settings["torch_dtype"])
    if len(files) > 1:
        size = sum(map(prod, shapes.values())) * dtype.itemsize
        texts[INDEX] = {"metadata": {"total_size": size}, "weight_map": places}
    for name, content in texts.items():
        (draft / name).write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2))
        sync_to_disk(draft / name)
    _open_files(draft, shapes, dtype)
    sync_to_disk(draft)
