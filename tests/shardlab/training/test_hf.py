"""Weights in Hugging Face's format: a round trip keeps every byte, and bad input is refused.

The files are written here by transformers' names and shapes, so that no test needs transformers.
`test_against_transformers` compares what the weights compute.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pages.ranks import alone
from shardlab.comm import World
from shardlab.fsdp import FSDP
from shardlab.gpt.config import LLAMA, GPTConfig
from shardlab.gpt.model import GPT
from shardlab.gpt.rope import RopeScaling
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import whole_parameters
from shardlab.training.checkpoint import hf
from shardlab.training.checkpoint.hf import HFError, from_hf, read_config, to_hf

VOCAB, HIDDEN, HEADS, GROUPS, FFN, LAYERS = 21, 16, 8, 4, 24, 4
LLAMA_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS, "intermediate_size": FFN, "vocab_size": VOCAB,
    "max_position_embeddings": 8, "tie_word_embeddings": False, "rms_norm_eps": 1e-6,
    "rope_theta": 500.0, "initializer_range": 0.1, "torch_dtype": "float32",
}  # fmt: skip
QWEN = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 4,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4}
MODELS: dict[str, dict[str, Any]] = {
    "llama": LLAMA_CONFIG,
    "tied": LLAMA_CONFIG | {"tie_word_embeddings": True},
    "a key a head, bf16": LLAMA_CONFIG | {"num_key_value_heads": HEADS, "torch_dtype": "bfloat16"},
    "qwen2": LLAMA_CONFIG | QWEN,
    "qwen2, tied": LLAMA_CONFIG | QWEN | {"tie_word_embeddings": True},
    "qwen3": LLAMA_CONFIG | QWEN3 | {"head_dim": 6, "rope_scaling": LLAMA3},
}
GRIDS = [
    {}, {"tensor": 2}, {"pipeline": 2}, {"tensor": 4}, {"pipeline": 4},
    {"tensor": 2, "pipeline": 2}, {"tensor": 2, "data": 2}, {"pipeline": 2, "context": 2},
    {"tensor": 4, "pipeline": 2},
]  # fmt: skip


def tensors(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Random tensors with transformers' names and shapes."""
    head = config.get("head_dim", HIDDEN // HEADS)
    queries, keys = head * HEADS, head * config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens": (VOCAB, HIDDEN), "norm": (HIDDEN,)}
    for i in range(LAYERS):
        layer = f"layers.{i}."
        shapes |= {f"{layer}{name}layernorm": (HIDDEN,) for name in ("input_", "post_attention_")}
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            shapes[f"{layer}self_attn.{name}_proj"] = rows, HIDDEN
        shapes[f"{layer}self_attn.o_proj"] = HIDDEN, queries
        if config["model_type"] == "qwen3":
            shapes |= {f"{layer}self_attn.{name}_norm": (head,) for name in "qk"}
        shapes |= {f"{layer}mlp.{name}_proj": (FFN, HIDDEN) for name in ("gate", "up")}
        shapes[f"{layer}mlp.down_proj"] = HIDDEN, FFN
    named = {f"model.{name}.weight": shape for name, shape in shapes.items()}
    if config["model_type"] == "qwen2":
        named |= {
            f"{n.removesuffix('weight')}bias": s[:1]
            for n, s in named.items()
            if n.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
        }
    if not config["tie_word_embeddings"]:
        named["lm_head.weight"] = VOCAB, HIDDEN
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, config["torch_dtype"])
    return {n: torch.randn(s, generator=generator).to(dtype) for n, s in named.items()}


def write(folder: Path, config: dict[str, Any], files: int = 1) -> dict[str, torch.Tensor]:
    """Write a model as transformers would, in one file or several."""
    folder.mkdir()
    (folder / hf.CONFIG).write_text(json.dumps(config), "utf-8")
    every = tensors(config)
    if files == 1:
        save_file(every, folder / hf.WEIGHTS, {"format": "pt"})
        return every
    places = {name: f"model-{i % files}.safetensors" for i, name in enumerate(every)}
    for file in set(places.values()):
        save_file({n: t for n, t in every.items() if places[n] == file}, folder / file)
    (folder / hf.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}), "utf-8")
    return every


def read(folder: Path) -> dict[str, torch.Tensor]:
    return {n: t for file in folder.glob("*.safetensors") for n, t in load_file(file).items()}


def make(world: World, axes: dict[str, int], config: GPTConfig, **options: Any) -> tuple[GPT, Grid]:
    grid = Grid(world=world, **axes)
    stage, stages = grid.pipeline.rank, grid.pipeline.size
    return GPT(config, tensor=grid.tensor, stage=stage, stages=stages, **options), grid


def round_trip(
    world: World, axes: dict[str, int], source: str, target: str, max_bytes: int, fsdp: bool
) -> None:
    model, grid = make(world, axes, read_config(source), device="meta" if fsdp else "cpu")
    from_hf(source, model=model, grid=grid)
    part: Any = model
    if fsdp:
        part = FSDP(model, grid.replicas, units=model.layers.values(), device=grid.device)
    to_hf(target, model=part, grid=grid, max_bytes=max_bytes)


@pytest.mark.parametrize(
    "axes", GRIDS, ids=lambda axes: "-".join(f"{k}{v}" for k, v in axes.items())
)
@pytest.mark.parametrize("kind", MODELS)
def test_a_round_trip_on_any_grid_keeps_every_byte(
    pool: Any, tmp_path: Path, kind: str, axes: dict[str, int]
) -> None:
    ranks = 1
    for size in axes.values():
        ranks *= size
    source, target = tmp_path / "source", tmp_path / "target"
    written = write(source, MODELS[kind])
    pool(ranks).run(round_trip, axes, str(source), str(target), 1 << 30, False)
    if "pipeline" not in axes:
        assert (target / hf.WEIGHTS).read_bytes() == (source / hf.WEIGHTS).read_bytes()
    found = read(target)
    assert found.keys() == written.keys()
    assert all(torch.equal(found[name], written[name]) for name in written)
    assert read_config(target) == read_config(source)
    stages = axes.get("pipeline", 1)
    assert len([*target.iterdir()]) == 2 if stages == 1 else stages + 2
    assert [*tmp_path.iterdir()] == [source, target] or [*tmp_path.iterdir()] == [target, source]


@pytest.mark.parametrize(
    "axes", [{"data": 2}, {"tensor": 2, "data": 2}, {"pipeline": 2, "data": 2}]
)
@pytest.mark.parametrize("kind", ["llama", "qwen2, tied"])
def test_fsdp_reads_its_shards_from_several_files_and_writes_several(
    pool: Any, tmp_path: Path, kind: str, axes: dict[str, int]
) -> None:
    written = write(tmp_path / "source", MODELS[kind], files=3)
    size = axes.get("tensor", 1) * axes.get("pipeline", 1) * axes["data"]
    names = str(tmp_path / "source"), str(tmp_path / "target")
    pool(size).run(round_trip, axes, *names, 4000, True)
    found = read(tmp_path / "target")
    assert found.keys() == written.keys()
    assert all(torch.equal(found[name], written[name]) for name in written)
    index = json.loads((tmp_path / "target" / hf.INDEX).read_text("utf-8"))
    files = sorted({*index["weight_map"].values()})
    assert len(files) > 3 and files[0] == f"model-00001-of-{len(files):05}.safetensors"
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in written.values())


class Counted:
    """A safetensors file that counts the elements that are read."""

    elements = 0

    def __init__(self, stored: Any) -> None:
        self.stored = stored

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stored, name)

    def get_slice(self, name: str) -> Any:
        return Counted(self.stored.get_slice(name))

    def __getitem__(self, index: Any) -> torch.Tensor:
        part: torch.Tensor = self.stored[index]
        Counted.elements += part.numel()
        return part


def elements_read(world: World, folder: str) -> tuple[int, int]:
    model, grid = make(world, {"tensor": 2, "pipeline": 2}, read_config(folder))
    opener, Counted.elements = hf.safe_open, 0
    hf.safe_open = lambda *args, **settings: Counted(opener(*args, **settings))
    try:
        from_hf(folder, model=model, grid=grid)
    finally:
        hf.safe_open = opener
    return Counted.elements, sum(p.numel() for p in model.parameters())


def test_a_rank_reads_its_own_slices_alone(pool: Any, tmp_path: Path) -> None:
    every = write(tmp_path / "model", LLAMA_CONFIG)
    padding = HIDDEN  # one row of 22 is no word
    for read_here, local in pool(4).run(elements_read, str(tmp_path / "model")):
        assert local - padding <= read_here <= local
        assert read_here < 0.3 * sum(t.numel() for t in every.values())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gemma"}, "model_type = 'gemma' isn't supported, only \"llama\" or"),
        ({"architectures": ["LlamaModel"]}, "architectures = .*only .*LlamaForCausalLM"),
        ({"attention_bias": True}, "attention_bias = True isn't supported, only false"),
        ({"mlp_bias": True}, "mlp_bias = True"),
        ({"rope_scaling": {"rope_type": "longrope"}},
         "rope_type = 'longrope' isn't supported, only"),
        ({"rope_scaling": {"type": "linear"}},
         "linear rope has no settings, and here it takes factor"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor = 0.5 of the rates"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, r"Expected `float`, got `str`"),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "low_freq_factor = 1.0 must be"),
        ({"rope_scaling": LLAMA3 | {"mscale": 1.0}}, "llama3 rope has .*mscale.* here it takes"),
        ({"rope_scaling": LLAMA3, "rope_theta": 1.0}, "rope_base = 1.0 is scaled"),
        ({"rope_scaling": YARN | {"beta_fast": 0.5}},
         "beta_slow = 1.0 must be above 0 and at most"),
        ({"rope_scaling": YARN | {"attention_factor": 0}}, "attention_factor = 0.0; give more"),
        ({"rope_scaling": YARN | {"mscale": 1, "mscale_all_dim": -5}}, "attention_factor = -"),
        ({"rope_scaling": YARN | {"mscale": "1", "mscale_all_dim": 1}}, "can't multiply"),
        ({"rope_scaling": YARN | {"low_freq_factor": 1.0}},
         "here it takes factor, original_max_position_embeddings, and perhaps attention_factor"),
        ({"rope_parameters": {"rope_theta": 9.0, "factor": 2.0}},
         "default rope has factor, and here it takes none"),
        ({"rope_parameters": [1]}, "rope_parameters is no object"),
        ({"sliding_window": 4},
         "sliding_window = 4 is shorter .* set max_position_embeddings to 4"),
        (MISTRAL | {"max_position_embeddings": 8192}, "sliding_window = 4096 is shorter"),
        ({"layer_types": ["linear_attention"]}, "layer_types = .*linear_attention"),
        ({"num_attention_heads": 7}, "hidden size 16 is not a multiple of 7 heads"),
        ({"head_dim": 3}, "a head of 3 has an odd number"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu' isn't supported, only \"silu\""),
        ({"torch_dtype": "float8"}, "torch_dtype = 'float8'"),
        ({"quantization_config": {}}, "unknown field `quantization_config`"),
        ({"hidden_size": "16"}, r"Expected `int`, got `str` - at `\$.hidden_size`"),
        ({"num_hidden_layers": 0}, r"`int` >= 1 - at `\$.num_hidden_layers`"),
    ],
)  # fmt: skip
def test_a_config_that_asks_for_more_is_refused_by_its_key(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    (tmp_path / hf.CONFIG).write_text(json.dumps(LLAMA_CONFIG | changes), "utf-8")
    with pytest.raises(HFError, match=words):
        read_config(tmp_path)


def test_a_config_is_read_in_the_forms_of_transformers_4_and_5(tmp_path: Path) -> None:
    newer = {k: v for k, v in LLAMA_CONFIG.items() if k not in ("torch_dtype", "rope_theta")} | {
        "dtype": "bfloat16", "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"},
        "bos_token_id": 1, "head_dim": 2, "pretraining_tp": 1, "use_cache": True,
    }  # fmt: skip
    (tmp_path / hf.CONFIG).write_text(json.dumps(newer), "utf-8")
    config = read_config(tmp_path)
    assert (config.rope_base, config.dtype, config.norm_eps) == (500.0, torch.bfloat16, 1e-6)
    for window in ({}, {"sliding_window": None}, {"sliding_window": 8}):
        (tmp_path / hf.CONFIG).write_text(json.dumps(newer | MISTRAL | window), "utf-8")
        assert read_config(tmp_path) == config
    for scaled in ({"rope_scaling": LLAMA3}, {"rope_parameters": LLAMA3 | {"rope_theta": 500.0}}):
        (tmp_path / hf.CONFIG).write_text(json.dumps(newer | scaled), "utf-8")
        assert read_config(tmp_path).rope_scaling == RopeScaling(**LLAMA3)
    qwen = (
        newer | QWEN | {"use_sliding_window": False, "sliding_window": 32, "max_window_layers": 2}
    )
    (tmp_path / hf.CONFIG).write_text(json.dumps(qwen), "utf-8")
    assert read_config(tmp_path).qkv_bias
    for content, words in (
        ("{", "malformed|truncated"),
        ("[]", "Expected `object`"),
        (None, "No such"),
    ):
        file = tmp_path / hf.CONFIG
        file.unlink() if content is None else file.write_text(content, "utf-8")
        with pytest.raises(HFError, match=words):
            read_config(tmp_path)


def edit(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        held = load_file(folder / hf.WEIGHTS)
        change(held)
        save_file(held, folder / hf.WEIGHTS)

    return apply


def cut(folder: Path) -> None:
    file = folder / hf.WEIGHTS
    file.write_bytes(file.read_bytes()[:-1])


def index(content: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / hf.WEIGHTS).rename(folder / "a.safetensors")
        places = dict.fromkeys(load_file(folder / "a.safetensors"), "a.safetensors")
        text = content if isinstance(content, str) else json.dumps({"weight_map": places | content})
        (folder / hf.INDEX).write_text(text, "utf-8")

    return apply


NORM, Q = "model.norm.weight", "model.layers.3.self_attn.q_proj.weight"
BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (edit(lambda held: held.pop(Q)), f"lacks 1 tensors: {Q}"),
    "extra": (edit(lambda held: held.update(extra=held[NORM] + 1)), "has extra, which the model"),
    "shape": (edit(lambda held: held.update({Q: held[Q][:8]})), r"weight is \[8, 16\] in .*\[16"),
    "rounded": (edit(lambda held: held.update({Q: held[Q].double()})), "is torch.float64, which"),
    "integers": (edit(lambda held: held.update({Q: held[Q].char()})), f"{Q} is torch.int8, which"),
    "truncated": (cut, "missing or damaged"),
    "no files": (lambda folder: (folder / hf.WEIGHTS).unlink(), "has no model.safetensors, and"),
    "outside": (index({Q: "../a.safetensors"}), "names '../a.safetensors', which"),
    "absolute": (index({Q: "/elsewhere/a.safetensors"}), "names '/elsewhere/a.safetensors'"),
    "pickle": (index({Q: "a.bin"}), "names 'a.bin'"),
    "lost file": (index({Q: "0.safetensors"}), "0.safetensors is missing or damaged"),
    "other file": (index({Q: "b.safetensors"}), "has .*q_proj.weight, and .* says b.safetensors"),
    "index": (index("[]"), "index.json can't be read"),
    "map": (index('{"weight_map": 1}'), "index.json can't be read"),
    "another": (
        lambda folder: (folder / hf.CONFIG).write_text(
            json.dumps(LLAMA_CONFIG | {"rms_norm_eps": 1.0})
        ),
        "another model: rms_norm_eps = 1.0 .here 1e-06.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_bad_weights_are_refused_in_a_sentence_and_change_nothing(
    tmp_path: Path, fault: str
) -> None:
    write(tmp_path / "model", LLAMA_CONFIG)
    spoil, words = BAD[fault]
    config = read_config(tmp_path / "model")
    spoil(tmp_path / "model")
    with alone(0, 1) as world:
        model, grid = make(world, {}, config)
        before = whole_parameters(model)
        with pytest.raises(HFError, match=words):
            from_hf(tmp_path / "model", model=model, grid=grid)
    after = whole_parameters(model)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_other_models_and_full_folders_are_refused(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"layers": 1, "hidden": 8, "heads": 2, "vocab": 9, "sequence": 4}
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("mine", "utf-8")
    with alone(0, 1) as world:
        model, grid = make(world, {}, GPTConfig(**settings))
        with pytest.raises(HFError, match=r"norm = 'layer', position = 'learned'.*only GPT"):
            to_hf(tmp_path / "out", model=model, grid=grid)
        model, grid = make(world, {}, GPTConfig(**LLAMA | settings))
        with pytest.raises(HFError, match="full exists and isn't empty: choose another folder"):
            to_hf(tmp_path / "full", model=model, grid=grid)
        with pytest.raises(HFError, match="Linear is no GPT of shardlab's"):
            to_hf(tmp_path / "out", model=torch.nn.Linear(2, 2), grid=grid)
        to_hf(tmp_path / "out", model=model, grid=grid)
        with pytest.raises(HFError, match="load the model before FSDP wraps it"):
            from_hf(tmp_path / "out", model=FSDP(model, grid.replicas), grid=grid)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "out"]
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["kept"]


def write_with_a_fault(world: World, target: str) -> str:
    model, grid = make(world, {"tensor": 2, "pipeline": 2}, GPTConfig(
        **LLAMA, layers=2, hidden=8, heads=2, vocab=9, sequence=4,
    ))  # fmt: skip
    saver = hf.save_file

    def full(*_: Any) -> None:
        raise OSError("no space left")

    hf.save_file = full if grid.pipeline.rank else saver
    try:
        to_hf(target, model=model, grid=grid, max_bytes=200)
    except HFError as error:
        return str(error)
    finally:
        hf.save_file = saver
    return "written"


def test_a_rank_that_can_not_write_ends_all_and_leaves_nothing(pool: Any, tmp_path: Path) -> None:
    found = pool(4).run(write_with_a_fault, str(tmp_path / "out"))
    assert {*found} == {"rank 2 could not write its weights: no space left"}
    assert [*tmp_path.iterdir()] == []


def test_masters_are_loaded_and_then_rounded(tmp_path: Path) -> None:
    from dataclasses import replace

    from shardlab.training.masters import make_masters, master_of

    every = write(tmp_path / "model", LLAMA_CONFIG)
    config = replace(read_config(tmp_path / "model"), dtype=torch.bfloat16)
    with alone(0, 1) as world:
        model, grid = make(world, {}, config)
        with pytest.raises(HFError, match=r"torch.float32, which torch.bfloat16 can't hold"):
            from_hf(tmp_path / "model", model=model, grid=grid)
        make_masters(model.parameters())
        from_hf(tmp_path / "model", model=model, grid=grid)
    norm = model.final_norm.weight
    assert torch.equal(master_of(norm), every["model.norm.weight"])
    assert torch.equal(norm, every["model.norm.weight"].bfloat16())


def test_without_safetensors_the_import_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for name in [name for name in sys.modules if name.startswith("shardlab.training.checkpoint")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r'isn\'t installed: pip install "shardbook\[kernels\]"'):
        import_module("shardlab.training.checkpoint.hf")
