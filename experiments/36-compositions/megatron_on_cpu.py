"""megatron-core's experts on the CPU, from known weights, and what they should give; its norm."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from room import random_like
from torch import Tensor, nn
from torch.nn import functional

from costlab.implementations.megatron import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    Instead,
    TransformerConfig,
    finalize_model_grads,
    parallel_state,
)
from costlab.implementations.megatron import moe_layer as megatron_experts

with warnings.catch_warnings(), patch.object(torch, "compile", lambda function: function):
    warnings.simplefilter("ignore")  # that apex and Transformer Engine are not installed
    from megatron.core import utils
    from megatron.core.optimizer import OptimizerConfig, clip_grads
    from megatron.core.optimizer import optimizer as optimizer_module
    from megatron.core.transformer.moe import moe_utils, router

HIDDEN, FFN, EXPERTS, SEQUENCE = 4, 4, 2, 8
# The norm's code asks for device="cuda".
_TORCH = Instead(
    torch,
    zeros=lambda *size, **options: torch.zeros(*size, **(options | {"device": "cpu"})),
    tensor=lambda data, **options: torch.tensor(data, **(options | {"device": "cpu"})),
)


@contextmanager
def experts_on_cpu(**sizes: Any) -> Iterator[None]:
    """Megatron's parallel state for experts; what only its log reads isn't kept."""
    unlogged = patch.object(router, "save_to_aux_losses_tracker", lambda *_, **__: None)
    with megatron_experts.megatron(**sizes), unlogged:
        yield


def expert_config(*, top_k: int, **settings: Any) -> TransformerConfig:
    """Two small experts of which each token visits `top_k`."""
    tensor = parallel_state.get_tensor_model_parallel_world_size()
    balance = {"moe_router_load_balancing_type": "none", "moe_aux_loss_coeff": 0.0}
    return megatron_experts.config(
        hidden=HIDDEN, heads=2, ffn_hidden_size=FFN, experts=EXPERTS, top_k=top_k, ffn=FFN,
        expert=parallel_state.get_expert_model_parallel_world_size(),
        expert_tensor=parallel_state.get_expert_tensor_parallel_world_size(),
        dispatch="all-gather", moe_router_dtype="fp64", sequence_parallel=tensor > 1,
        add_bias_linear=False, **(balance | settings),
    )  # fmt: skip


def moe_layer(settings: TransformerConfig) -> nn.Module:
    """Megatron's layer, whose weights are those that `whole` draws, cut as the layer says."""
    layer = megatron_experts.layer(settings)
    for name, parameter in layer.named_parameters():
        parameter.data.copy_(own_part(layer, name, parameter, whole()[global_name(layer, name)]))
    return layer


def whole() -> dict[str, Tensor]:
    """The router's weight and each expert's two, uncut."""
    weights = {"router.weight": random_like(EXPERTS, HIDDEN, seed=0)}
    for expert in range(EXPERTS):
        at = f"experts.local_experts.{expert}"
        weights[f"{at}.linear_fc1.weight"] = random_like(FFN, HIDDEN, seed=2 * expert + 1)
        weights[f"{at}.linear_fc2.weight"] = random_like(HIDDEN, FFN, seed=2 * expert + 2)
    return weights


def right_gradients(x_SBH: Tensor, toward_SBH: Tensor) -> dict[str, Tensor]:
    """A dense loop over the experts in one process: the gradients of Σ y · toward."""
    weights = {name: w.requires_grad_() for name, w in whole().items()}
    logits_SBE = x_SBH @ weights["router.weight"].T
    share_SBE = functional.softmax(
        logits_SBE, dim=-1, dtype=torch.float32
    ).double()  # as the router's
    y_SBH = sum(
        share_SBE[..., e : e + 1]
        * functional.linear(
            functional.gelu(x_SBH @ weights[f"experts.local_experts.{e}.linear_fc1.weight"].T),
            weights[f"experts.local_experts.{e}.linear_fc2.weight"],
        )
        for e in range(EXPERTS)
    )
    (y_SBH * toward_SBH).sum().backward()
    return {name: w.grad for name, w in weights.items() if w.grad is not None}


def global_name(layer: nn.Module, name: str) -> str:
    """An expert's name where none is anywhere else."""
    head, dot, rest = name.partition("local_experts.")
    if not dot:
        return name
    local, _, rest = rest.partition(".")
    return f"{head}local_experts.{layer.local_expert_indices[int(local)]}.{rest}"


def own_part(layer: nn.Module, name: str, parameter: Tensor, full: Tensor) -> Tensor:
    """What this rank holds of a whole weight."""
    if full.shape == parameter.shape:
        return full
    dim = 0 if "fc1" in name else 1
    group = layer.experts.tp_group
    return full.chunk(group.size(), dim)[group.rank()]


def trained(layer: nn.Module, x_SBH: Tensor, toward_SBH: Tensor) -> dict[str, Tensor]:
    """The gradients after Megatron's data parallel and `finalize_model_grads`, by parameter."""
    replicas = DistributedDataParallel(layer.config, DistributedDataParallelConfig(), layer)
    y, _ = replicas(x_SBH)
    (y * toward_SBH).sum().backward()
    finalize_model_grads([replicas])
    return {name: p.main_grad for name, p in layer.named_parameters()}


def router_gradient(settings: TransformerConfig, batches: list[Tensor]) -> Tensor:
    """The router's gradient of a step, from its auxiliary loss alone, over these micro-batches."""
    gate = router.TopKRouter(settings, moe_utils.get_default_pg_collection())
    gate.weight.data.copy_(whole()["router.weight"])
    replicas = DistributedDataParallel(settings, DistributedDataParallelConfig(), gate)
    for tokens_SBH in batches:
        shares, _ = replicas(tokens_SBH)
        (0 * shares).sum().backward()
    tensor = parallel_state.get_tensor_model_parallel_world_size()
    tokens = sum(batch[..., 0].numel() for batch in batches) * tensor
    finalize_model_grads([replicas], num_tokens=torch.tensor(tokens))
    return gate.weight.main_grad.clone()


def norm_of(parameters: Iterable[nn.Parameter], group: dist.ProcessGroup) -> float:
    """The norm of these parameters' `.grad`, as an optimizer takes it over this group."""
    with ExitStack() as stack:
        for module in (optimizer_module, clip_grads, utils):
            stack.enter_context(patch.object(module, "torch", _TORCH))
        inner = torch.optim.SGD(parameters, lr=0.1)
        optimizer = optimizer_module.FP32Optimizer(inner, OptimizerConfig(), lambda *_: None)
        optimizer.grad_stats_parallel_group = group
        optimizer.tp_group = parallel_state.get_tensor_model_parallel_group()
        return float(optimizer.get_grad_norm())
