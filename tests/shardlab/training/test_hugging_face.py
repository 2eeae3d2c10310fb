"""Weights from and for transformers: a round trip is byte-equal, and a Llama's step the same.

transformers computes norms, rotations and the loss in fp32, whatever the model's dtype. The test
lets it compute them in fp64.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pages.ranks import alone
from shardlab.comm import Axis, World
from shardlab.context.parallel import ContextParallel
from shardlab.fsdp import FSDP
from shardlab.gpt.config import LLAMA, GPTConfig
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.layers.sharding import whole
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from shardlab.training.checkpoint import CheckpointError
from shardlab.training.checkpoint.hugging_face import (
    from_hf,
    read_config,
    source_of,
    split,
    to_hf,
    write_config,
)
from shardlab.training.step import StepGradients
from tests.shardlab.difference import difference

SIZES: dict[str, Any] = {
    "layers": 2, "hidden": 16, "heads": 4, "kv_heads": 2, "ffn": 24, "vocab": 21, "sequence": 8,
}  # fmt: skip
CONFIG = GPTConfig(**LLAMA, **SIZES, dtype=torch.bfloat16)
QWEN = replace(CONFIG, qkv_bias=True, tie_embeddings=True)
BATCH = 4


def make_folder(folder: Path, config: GPTConfig) -> dict[str, Tensor]:
    """Write a folder as transformers would, of random tensors in one file; return them."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(write_config(config)))
    generator, tensors = torch.Generator().manual_seed(0), {}
    for name, parameter in GPT(config, tensor=Axis.alone()).named_parameters():
        drawn = torch.randn(parameter.shape, generator=generator).to(config.dtype)
        tensors |= split(name, drawn, config)
    save_file(tensors, folder / "model.safetensors")
    return tensors


def build(world: World, axes: dict[str, int], config: GPTConfig, **kind: Any) -> tuple[GPT, Grid]:
    grid = Grid(world=world, **axes)
    model = GPT(
        config, tensor=grid.tensor, stage=grid.pipeline.rank, stages=grid.pipeline.size,
        context=ContextParallel(grid.context), **kind,
    )  # fmt: skip
    return model, grid


def read(folder: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as opened:
            tensors |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    return tensors


def round_trip(world: World, axes: dict[str, int], fsdp: bool, source: str, target: str) -> int:
    config = read_config(source, dtype=torch.bfloat16)
    model, grid = build(world, axes, config, device="meta" if fsdp else "cpu")
    from_hf(source, model=model, grid=grid)
    module: nn.Module = model
    if fsdp:
        units, device = model.layers.values(), torch.device("cpu")
        module = FSDP(model, grid.replicas, units=units, device=device)
    to_hf(target, model=module, grid=grid)
    return sum(parameter.numel() for parameter in module.parameters())


GRIDS = [
    ({}, False), ({"tensor": 2}, False), ({"pipeline": 2}, False), ({"data": 2}, True),
    ({"tensor": 2, "data": 2}, True), ({"tensor": 2, "pipeline": 2}, False),
]  # fmt: skip


@pytest.mark.parametrize("config", [CONFIG, QWEN], ids=["llama", "qwen2"])
@pytest.mark.parametrize(("axes", "fsdp"), GRIDS)
def test_a_round_trip_is_byte_equal_and_no_rank_holds_the_whole_model(
    pool: Any, tmp_path: Path, axes: dict[str, int], fsdp: bool, config: GPTConfig
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    tensors = make_folder(source, config)
    ranks = torch.tensor([*axes.values(), 1]).prod().item()
    held = pool(ranks).run(round_trip, axes, fsdp, str(source), str(target))
    again = read(target)
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)
    index = json.loads((target / "model.safetensors.index.json").read_text())["weight_map"]
    assert index.keys() == tensors.keys()
    assert {*index.values()} == {path.name for path in target.glob("*.safetensors")}
    assert read_config(target, dtype=config.dtype) == config
    total = sum(x.numel() for x in tensors.values())
    assert ranks == 1 or max(held) < 0.8 * total


def test_what_shardlab_has_no_block_for_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    make_folder(folder, CONFIG)
    plain = json.loads((folder / "config.json").read_text())
    for change, words in [
        ({"model_type": "qwen3"}, "model_type 'qwen3'; choose llama, mistral, qwen2"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "scaled rope"),
        ({"attention_bias": True}, "attention_bias or mlp_bias"),
        ({"head_dim": 8}, "heads of 8 features"),
        ({"num_local_experts": 8}, "experts"),
        ({"hidden_size": None}, "is not a model's"),
    ]:
        (folder / "config.json").write_text(json.dumps(plain | change))
        with pytest.raises(CheckpointError, match=words):
            read_config(folder)
    with alone(0, 1) as world:
        model, grid = build(world, {}, replace(CONFIG, ffn=32))
        with pytest.raises(
            CheckpointError, match=r"gate_proj.weight is \[24, 16\], expected \[32, 16"
        ):
            from_hf(folder, model=model, grid=grid)
        (folder / "model.safetensors").unlink()
        index = {"weight_map": {"model.embed_tokens.weight": "../other.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(CheckpointError, match=r"other.safetensors': not a file of this folder"):
            from_hf(folder, model=model, grid=grid)
        with pytest.raises(CheckpointError, match="is a model of transformers"):
            to_hf(tmp_path / "gpt", model=GPT(GPTConfig(**SIZES), tensor=Axis.alone()), grid=grid)


# ------------------------------------------------------------------ transformers itself


def text() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(21, (BATCH, 9), generator=torch.Generator().manual_seed(3))
    return tokens[:, :-1], tokens[:, 1:]


def step_on_ranks(
    world: World, axes: dict[str, int], folder: str, right: dict[str, Tensor], target: str
) -> dict[str, float]:
    """Load, take a step, save; the differences from transformers' logits, loss and gradients."""
    config = read_config(folder, dtype=torch.float64)
    model, grid = build(world, axes, config, sequence_parallel=axes.get("tensor", 1) > 1)
    from_hf(folder, model=model, grid=grid)
    step = StepGradients(model, grid)
    shard = model.context.shard if model.context else lambda x: x
    tokens, targets = (shard(x.chunk(grid.data.size)[grid.data.rank]) for x in text())
    losses = run(
        by_name("1f1b", grid.pipeline.size, 1), model, [(tokens, targets)], model.loss,
        axis=grid.pipeline, shape=model.hidden_shape(BATCH // grid.data.size, 8),
    )  # fmt: skip
    step.finish()
    off = {}
    if losses:
        mean = grid.replicas.all_reduce(losses[0][None], op="mean")[0]
        off["loss"] = difference(mean, right["loss"])
    for name, parameter in model.named_parameters():
        for theirs, gradient in split(name, whole(parameter, parameter.grad), config).items():
            off[theirs] = difference(gradient, right[theirs])
    if world.size == 1:
        logits = model(tokens).transpose(0, 1)
        off["logits"] = difference(logits, right["logits"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad, alpha=0.1)
    to_hf(target, model=model, grid=grid)
    return off


def in_fp64(model: Any) -> Any:
    """Let norms and rotations compute in the model's dtype."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            norm = nn.RMSNorm(module.weight.shape, eps=module.variance_epsilon)
            norm.weight = module.weight
            module.forward = norm.forward
    rotary = model.model.rotary_emb
    config = model.config
    head = config.hidden_size // config.num_attention_heads
    rates = 10_000.0 ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)

    def forward(x: Tensor, position_ids: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        angle = position_ids[..., None].double() * rates
        angle = torch.cat([angle, angle], -1)
        return angle.cos(), angle.sin()

    rotary.forward = forward
    return model


def losses_of(model: Any) -> tuple[Tensor, Tensor]:
    tokens, targets = text()
    logits = model(input_ids=tokens, use_cache=False).logits
    return logits, cross_entropy(logits.flatten(0, 1), targets.flatten())


@pytest.mark.may_skip
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_step_equals_transformers_and_goes_back_to_it(
    pool: Any, tmp_path: Path, kind: str
) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {
        "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "vocab_size": 21,
        "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 8,
        "initializer_range": 0.2, "rms_norm_eps": 1e-5,
    }  # fmt: skip
    settings, model_class = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    }[kind]
    torch.manual_seed(0)
    config = settings(**sizes, tie_word_embeddings=kind == "qwen2")
    model = in_fp64(model_class(config).double())
    folder = tmp_path / "transformers"
    model.save_pretrained(folder)
    logits, loss = losses_of(model)
    loss.backward()
    right = {n: p.grad for n, p in model.named_parameters()}
    right |= {"loss": loss.detach(), "logits": logits.detach()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad, alpha=0.1)
    after = losses_of(model)[1]
    for number, axes in enumerate(
        [{}, {"tensor": 2}, {"context": 2}, {"pipeline": 2}, {"data": 2}, {"tensor": 2, "data": 2}]
    ):
        ranks = torch.tensor([*axes.values(), 1]).prod().item()
        target = tmp_path / str(number)
        found = pool(ranks).run(step_on_ranks, axes, str(folder), right, str(target))
        names = {name for rank in found for name in rank}
        assert names >= right.keys() - {"logits"}
        assert max(off for rank in found for off in rank.values()) < 1e-12, (axes, found)
        again = in_fp64(model_class.from_pretrained(target, dtype=torch.float64))
        assert difference(losses_of(again)[1], after) < 1e-12, axes


def test_a_name_of_ours_is_made_of_the_names_of_theirs() -> None:
    qkv = source_of("layers.3.attention.qkv.weight", CONFIG)
    assert qkv.rows == (8, 4, 4)
    assert qkv.names[0] == "model.layers.3.self_attn.q_proj.weight"
