"""The memory of each rank equals, to the byte, what three libraries' models hold and save.

Each test names what its library keeps on a CPU in addition; these bytes depend on the library and
not on the model: an RMS norm written in Python keeps the rows that its weight scales, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import silu

from costlab.implementations import megatron as mcore
from costlab.implementations.megatron import gpt as megatron_gpt
from costlab.implementations.megatron import moe_layer as megatron_experts
from costlab.layouts import memory
from costlab.layouts.model import Model, Plan, layers_of_stages
from pages.ranks import alone
from shardlab.experts.expert_config import ExpertConfig
from shardlab.gpt.config import LLAMA, GPTConfig
from shardlab.gpt.model import GPT

S, B, H, A, V, L = 32, 2, 64, 4, 256, 4
ROWS = S * B
GATED = {"ffn": 48, "kv_heads": 2, "gated": True, "tied": False, "norm": "rms", "bias": False}
EXPERTS = {"experts": 4, "top_k": 2, "expert_ffn": 48}
GPT2: dict[str, Any] = {"positions": S}
FP32 = {"activation": 4, "weight": 4, "gradient": 4, "optimizer": 8}
LABELS = ROWS * 8  # of a micro-batch, kept by the loss
RMS_ROWS = (2 * L + 1) * ROWS * H * 4


def model(**settings: Any) -> Model:
    return Model(**{"layers": L, "hidden": H, "heads": A, "vocabulary": V} | settings)


def plan(**settings: Any) -> Plan:
    return Plan(**{"sequence": S, "micro_batch": B, "global_batch": B} | FP32 | settings)


def saved_bytes(module: nn.Module, forward: Callable[[], Any]) -> int:
    """Return the bytes that autograd keeps of one forward: each storage once, no parameters."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if (place := tensor.untyped_storage().data_ptr()) not in parameters:
            kept[place] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def expected_saved(model: Model, plan: Plan) -> float:
    held = memory.rank_bytes(model, plan, 0)
    return held["activations"] + held["logits"]


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


FAMILIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dense": (GPT2, {}),
    "untied": ({**GPT2, "tied": False}, {"tie_embeddings": False}),
    "gated, grouped": (GATED, {**LLAMA, "ffn": 48, "kv_heads": 2}),
    "experts": ({**GPT2, "experts": 4}, {"experts": ExpertConfig(count=4)}),
    "gated experts": (
        {**GATED, **EXPERTS, "expert_ffn": 48},
        {**LLAMA, "ffn": 48, "kv_heads": 2, "experts": ExpertConfig(count=4)},
    ),
}
CUTS = [(1, ()), (2, ()), (1, (2, 2)), (2, (1, 2, 1)), (2, (3, 1))]
ON_CUTS = [  # shardlab's experts need axes of their own on several tensor ranks
    (family, *cut) for family in FAMILIES for cut in CUTS if cut[0] == 1 or "experts" not in family
]


@pytest.mark.parametrize(("family", "tensor", "stages"), ON_CUTS)
def test_every_stage_has_shardlabs_parameters_gradients_and_optimizer_state(
    family: str, tensor: int, stages: tuple[int, ...]
) -> None:
    sizes, settings = FAMILIES[family]
    many = model(**sizes)
    cut = plan(tensor=tensor, stages=len(stages) or 1, layers=stages)
    config = GPTConfig(layers=L, hidden=H, heads=A, vocab=V, sequence=S, **settings)
    with alone(0, tensor) as world:
        for stage, (layers,) in enumerate(layers_of_stages(many, cut)):
            module = GPT(
                config, tensor=world.whole, stage=stage, stages=cut.stages, device="meta",
                blocks=range(layers[0], layers[-1] + 1),
            )  # fmt: skip
            held = memory.rank_bytes(many, cut, stage)
            for kind, width in (("weights", 4), ("gradients", 4), ("optimizer", 8)):
                assert held[kind] == width * count(module)


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("family", ["dense", "untied", "gated, grouped"])
def test_a_rank_saves_the_activations_of_shardlabs_model(family: str, tensor: int) -> None:
    """Its attention is torch's fused kernel."""
    sizes, settings = FAMILIES[family]
    config = GPTConfig(layers=L, hidden=H, heads=A, vocab=V, sequence=S, **settings)
    of_loss = ROWS * (4 + 1) + 8  # its sums, which targets count, and their number
    rope = RMS_ROWS + 2 * L * S * (H // A // 2) * 4 if "ffn" in sizes else 0
    with alone(0, tensor) as world:
        module = GPT(config, tensor=world.whole)
        tokens = torch.randint(0, V, (B, S))
        saved = saved_bytes(module, lambda: module.loss(module(tokens), tokens))
    of_loss += ROWS if tensor > 1 else 0  # the embedding's rows that another rank has
    cut = plan(tensor=tensor)
    assert saved == expected_saved(model(**sizes), cut) + LABELS + of_loss + rope


MEGATRON: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dense": (GPT2, {}),
    "untied": ({**GPT2, "tied": False}, {}),
    "gated, grouped": (
        {**GATED, **GPT2, "norm": "layer"},
        {"num_query_groups": 2, "ffn_hidden_size": 48, "gated_linear_unit": True,
         "activation_func": silu, "add_bias_linear": False},
    ),
    "experts": (
        {**GPT2, **EXPERTS, "bias": False},
        {"num_moe_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 48,
         "add_bias_linear": False, "moe_token_dispatcher_type": "alltoall"},
    ),
}  # fmt: skip


def megatron_model(family: str, tensor: int, **settings: Any) -> nn.Module:
    sizes, theirs = MEGATRON[family]
    config = mcore.config(dtype=torch.float32, hidden=H, heads=A, depth=L, **theirs, **settings)
    spec = mcore.layer_spec()
    if "experts" in sizes:
        from megatron.core.transformer.moe.moe_layer import MoELayer  # noqa: F401

        spec.submodules.mlp = megatron_experts.get_moe_module_spec(use_te=False, num_experts=4)
    return mcore.GPTModel(
        config, spec, vocab_size=V, max_sequence_length=S,
        pre_process=mcore.parallel_state.is_pipeline_first_stage(),
        post_process=mcore.parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=sizes.get("tied", True),
    )  # fmt: skip


def on_grids(*grids: tuple[int, int]) -> Any:
    """Every family on each (tensor, stages); Megatron's experts take one tensor rank here."""
    pairs = [(family, *grid) for family in MEGATRON for grid in grids]
    kept = [pair for pair in pairs if pair[1] == 1 or "experts" not in MEGATRON[pair[0]][0]]
    return pytest.mark.parametrize(("family", "tensor", "stages"), kept)


@on_grids((1, 1), (2, 1), (2, 2))
def test_the_first_stage_has_megatrons_parameters(family: str, tensor: int, stages: int) -> None:
    sizes, _ = MEGATRON[family]
    with alone(0, tensor * stages), megatron_experts.megatron(tensor=tensor, pipeline=stages):
        module = megatron_model(family, tensor)
    expected = memory.parameters(model(**sizes), plan(tensor=tensor, stages=stages), 0)
    assert count(module) == sum(expected)


@on_grids((1, 1), (2, 1))
def test_a_rank_saves_the_activations_of_megatrons_model(
    family: str, tensor: int, stages: int
) -> None:
    """Its local attention on a CPU is unfused."""
    sizes, _ = MEGATRON[family]
    with alone(0, tensor * stages), megatron_experts.megatron(tensor=tensor):
        module = megatron_model(family, tensor)
        tokens, places = torch.randint(0, V, (B, S)), torch.arange(S).expand(B, S)
        mask = megatron_gpt.causal_mask(S)
        saved = saved_bytes(module, lambda: module(tokens, places, mask, labels=tokens))
    extra = LABELS + S * 8 + S * S + ROWS  # positions, the mask, which targets are this rank's
    extra += ROWS if tensor > 1 else 0  # and which words are
    if family == "gated, grouped":  # glu_linear_offset copies what the gate multiplies
        extra += L * ROWS * 48 * 4 // tensor
    if family == "experts":  # places: k numbers, a probability and a row each, and two masks
        extra += L * ROWS * (2 * 8 + 2 * 4 + 4 + 2 * 8 + 2 * 4)
    cut = plan(tensor=tensor, attention="unfused")
    assert saved == expected_saved(model(**sizes), cut) + extra


TRANSFORMERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Llama": (GATED, {}),
    "Qwen2": ({**GATED, "qkv_bias": True}, {}),
    "Mixtral": ({**GATED, **EXPERTS}, {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "GPT2": (GPT2, {}),
}


@pytest.mark.parametrize("family", TRANSFORMERS)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_one_rank_holds_and_saves_what_transformers_does(family: str, attention: str) -> None:
    transformers: Any = pytest.importorskip(
        "transformers", reason="transformers is not installed: make hf-env"
    )
    sizes, theirs = TRANSFORMERS[family]
    settings = {
        "vocab_size": V, "hidden_size": H, "num_attention_heads": A, "num_hidden_layers": L,
        "max_position_embeddings": S, "intermediate_size": 48, "num_key_value_heads": 2,
        "tie_word_embeddings": False, **theirs,
    }  # fmt: skip
    if family == "GPT2":
        settings = {
            "vocab_size": V, "n_embd": H, "n_head": A, "n_layer": L, "n_positions": S,
            "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
            "activation_function": "gelu", "bos_token_id": 0, "eos_token_id": 0,
        }  # fmt: skip
    config = getattr(transformers, f"{family}Config")(**settings, attn_implementation=attention)
    name = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    module = getattr(transformers, name)(config).train()
    tokens = torch.randint(0, V, (B, S))
    saved = saved_bytes(module, lambda: module(input_ids=tokens, labels=tokens, use_cache=False))
    extra = LABELS + 4  # the loss's weight
    extra += S * 8 if family == "GPT2" else RMS_ROWS + 2 * S * (H // A) * 4  # rope's two tables
    if family == "Mixtral":  # it weighs the experts' rows after fc2: keeps them, not those before
        k, rows = 2, 2 * ROWS
        extra += L * (rows * H * 4 - rows * 48 * 4 + 16)
        extra += L * ROWS * (k * 8 + 4 + k * 4 + 3 * k * 8 + k * 4)
    one = model(**sizes)
    cut = plan(attention="fused" if attention == "sdpa" else "unfused")
    assert count(module) == sum(memory.parameters(one, cut, 0))
    assert saved == expected_saved(one, cut) + extra
