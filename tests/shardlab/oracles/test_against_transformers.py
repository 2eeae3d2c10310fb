"""shardlab's GPT with a Llama's or Qwen's weights computes what transformers computes, in fp64.

On every grid of up to four ranks: logits, loss and all gradients, after `from_hf` from the files
that transformers wrote. The gradients are written by `to_hf` in place of the weights, so that
they are compared by transformers' names. Rope's layout, the norms' eps, the order of the fused
rows and the pairs of gate and up would each show in the logits.

transformers computes norms, angles and the loss in fp32, in whatever dtype the model is. `Double`
makes that fp64.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pages.ranks import alone
from shardlab.comm import World
from shardlab.context.parallel import ContextParallel
from shardlab.gpt.model import GPT
from shardlab.grid.grid import Grid
from shardlab.pipeline.run import run
from shardlab.pipeline.schedule import by_name
from shardlab.training.checkpoint.hf import describe, from_hf, read_config, to_hf
from shardlab.training.step import StepGradients
from tests.shardlab.difference import TOLERANCE, difference

transformers: Any = pytest.importorskip(
    "transformers", reason="transformers is not installed: make hf-env"
)

VOCAB, SEQUENCE, BATCH, LAYERS = 23, 24, 24, 5  # BATCH: 2 equal micro-batches a rank
ROPE, OLD = {"rope_theta": 30.0}, "original_max_position_embeddings"
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 96, "num_attention_heads": 24, "num_key_value_heads": 12,
    "intermediate_size": 48, "num_hidden_layers": LAYERS, "max_position_embeddings": SEQUENCE,
    "rms_norm_eps": 1e-2, "initializer_range": 0.2,
    "rope_parameters": ROPE | {"rope_type": "default"},
}  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
MODELS = {
    "llama": ("Llama", {}),
    "llama 3.2": (
        "Llama",
        {"tie_word_embeddings": True, "head_dim": 8, "rope_parameters": ROPE | LLAMA3 | {OLD: 20}},
    ),
    "qwen2, linear": (
        "Qwen2",
        {"tie_word_embeddings": True, "rope_parameters": ROPE | LINEAR},
    ),
    "qwen3": ("Qwen3", {"head_dim": 6}),
    "qwen3, yarn": (
        "Qwen3",
        {
            "tie_word_embeddings": True, "head_dim": 8,
            "rope_parameters": ROPE | {"rope_type": "yarn", "factor": 4.0, OLD: 6},
        },
    ),
    "mistral": ("Mistral", {"sliding_window": SEQUENCE}),
}  # fmt: skip
AXES = ("tensor", "context", "pipeline", "data")
GRIDS = [
    sizes for sizes in itertools.product((1, 2, 3, 4), repeat=4) if math.prod(sizes) <= 4
]  # fmt: skip


class Double(TorchFunctionMode):
    """What asks for fp32 gets fp64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func = Tensor.double if func is Tensor.float else func
        args = [torch.float64 if arg is torch.float32 else arg for arg in args]
        kwargs = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return func(*args, **kwargs)


def text() -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(VOCAB, (BATCH, SEQUENCE + 1), generator=generator)


@pytest.fixture(scope="module", params=MODELS)
def oracle(request: Any, tmp_path_factory: Any) -> tuple[str, dict[str, Tensor], dict[str, Tensor]]:
    """A folder that transformers wrote; its logits and loss; and its gradients."""
    name, settings = MODELS[request.param]
    folder = tmp_path_factory.mktemp("transformers")
    with Double():
        torch.manual_seed(1)
        config = getattr(transformers, f"{name}Config")(**SIZES | settings)
        model = getattr(transformers, f"{name}ForCausalLM")(config).double()
        with torch.no_grad():
            for parameter in model.parameters():  # norms start at one, biases at zero
                parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(folder, max_shard_size="200KB")
        out = model(input_ids=text(), labels=text())
        out.loss.backward()
    assert len([*folder.glob("*.safetensors")]) > 1
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return (
        str(folder),
        {"logits": out.logits[:, :-1].detach(), "loss": out.loss.detach()},
        gradients,
    )


def step(
    world: World, sizes: Sequence[int], folder: str, right: dict[str, Tensor], out: str
) -> dict[str, float]:
    """Train one step; write the gradients to `out`; return how far logits and loss are off."""
    grid = Grid(world=world, **dict(zip(AXES, sizes, strict=True)))
    stage, stages = grid.pipeline.rank, grid.pipeline.size
    model = GPT(
        read_config(folder), tensor=grid.tensor, stage=stage, stages=stages,
        sequence_parallel=grid.tensor.size > 1, seed=3,
        context=ContextParallel(grid.context), device=grid.device,
        blocks=range(LAYERS * stage // stages, LAYERS * (stage + 1) // stages),
    )  # fmt: skip
    from_hf(folder, model=model, grid=grid)
    gradients = StepGradients(model, grid, microbatches=2)
    off: dict[str, float] = {"logits": 0.0}
    share = text().chunk(grid.data.size)[grid.data.rank].to(grid.device)
    expected = right["logits"].chunk(grid.data.size)[grid.data.rank].chunk(2)
    tokens, targets = share[:, :-1], share[:, 1:]
    if model.context:
        tokens, targets = model.context.shard(tokens), model.context.shard(targets)
    targets_of = targets.contiguous().chunk(2)
    rows = len(share) // 2

    def loss(logits_SBv: Tensor, number: Tensor) -> Tensor:
        logits_BSv = logits_SBv.detach().transpose(0, 1)
        wanted = expected[int(number)]
        if model.context:
            wanted = wanted[:, model.context.positions(logits_BSv.shape[1])]
        begin = grid.tensor.rank * logits_BSv.shape[2]
        wanted = wanted[..., begin : begin + logits_BSv.shape[2]]
        local = logits_BSv[..., : wanted.shape[2]].contiguous()
        off["logits"] = max(off["logits"], difference(local, wanted.contiguous()))
        return model.loss(logits_SBv, targets_of[int(number)])

    losses = run(
        by_name("1f1b", stages, 2), model,
        [(x, torch.tensor(i)) for i, x in enumerate(tokens.contiguous().chunk(2))],
        loss, axis=grid.pipeline, shape=model.hidden_shape(rows, SEQUENCE), dtype=torch.float64,
    )  # fmt: skip
    gradients.finish()
    if losses:
        mean = grid.replicas.all_reduce(torch.stack(losses).mean()[None], op="mean")[0]
        off["loss"] = difference(mean, right["loss"].to(mean.device))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    to_hf(out, model=model, grid=grid)
    return off


@pytest.mark.parametrize("sizes", GRIDS, ids=lambda sizes: "-".join(map(str, sizes)))
def test_logits_loss_and_gradients_are_those_of_transformers(
    pool: Any, oracle: Any, sizes: Sequence[int], tmp_path: Path
) -> None:
    folder, right, gradients = oracle
    results = pool(math.prod(sizes)).run(step, sizes, folder, right, str(tmp_path / "gradients"))
    assert all(off <= TOLERANCE for rank in results for off in rank.values()), results
    assert any("loss" in rank for rank in results)
    written = {
        n: t
        for f in (tmp_path / "gradients").glob("*.safetensors")
        for n, t in load_file(f).items()
    }
    assert written.keys() == gradients.keys()
    off = {name: difference(written[name], gradients[name]) for name in written}
    assert max(off.values()) <= TOLERANCE, off


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"attention_factor": 0.7}, {"mscale": 0.8, "mscale_all_dim": 0.3}, {"mscale": 0.8},
        {"mscale": 0.8, "mscale_all_dim": 0.3, "attention_factor": 1.5},
        {"beta_fast": 9, "beta_slow": 2.5}, {"beta_fast": 1, "beta_slow": 1}, {"truncate": False},
        {"beta_fast": 4.0, "beta_slow": 0.25, "truncate": False, "attention_factor": 1.1},
    ],
    ids=lambda settings: "-".join(settings) or "plain",
)  # fmt: skip
def test_each_setting_of_yarn_rotates_as_in_transformers(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = ROPE | {"rope_type": "yarn", "factor": 4.0, OLD: 64} | settings
    with Double():
        config = transformers.Qwen3Config(**SIZES | {"head_dim": 32, "rope_parameters": scaling})
        rates, factor = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    config.save_pretrained(tmp_path)
    ours = read_config(tmp_path)
    assert ours.rope_scaling
    assert difference(torch.tensor(ours.rope_rates, dtype=torch.float64), rates) <= TOLERANCE
    assert math.isclose(ours.rope_scaling.magnitude, factor, rel_tol=1e-12)
    assert read_config(write_again(tmp_path, describe(ours))) == ours


def write_again(folder: Path, settings: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")
    return folder


def test_transformers_loads_what_was_written_and_computes_the_same(
    oracle: Any, tmp_path: Path
) -> None:
    with alone(0, 1) as world:
        grid = Grid(world=world)
        model = GPT(read_config(oracle[0]), tensor=grid.tensor, seed=7)
        to_hf(tmp_path / "out", model=model, grid=grid)
    with Double():
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "out", dtype=torch.float64
        )
        kind = transformers.AutoConfig.from_pretrained(oracle[0]).model_type
        assert loaded.config.model_type == {"mistral": "llama"}.get(kind, kind)
        logits = loaded(input_ids=text()[:, :-1]).logits
    assert difference(model(text()[:, :-1]).transpose(0, 1).contiguous(), logits) <= TOLERANCE
