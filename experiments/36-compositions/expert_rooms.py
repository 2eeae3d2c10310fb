"""Experts meet tensor parallelism, data parallelism and the gradient norm."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from megatron_on_cpu import (
    HIDDEN,
    SEQUENCE,
    expert_config,
    experts_on_cpu,
    global_name,
    moe_layer,
    norm_of,
    own_part,
    right_gradients,
    router_gradient,
    trained,
)
from room import difference, random_like, room
from torch import nn

from costlab.implementations.megatron import parallel_state
from shardlab.comm import World

# (TP, EP, ETP) on two ranks.
WRONG = {"tp2 etp1": (2, 1, 1), "tp1 etp2": (1, 1, 2)}
RIGHT = {"dp2": (1, 1, 1), "ep2": (1, 2, 1), "tp2 etp2": (2, 1, 2), "tp2 ep2": (2, 2, 1)}


@room("expert-gradients", ranks=2)
def expert_gradients(world: World) -> dict[str, float]:
    """The worst relative error of an expert's gradient, by layout."""
    tokens, upstream = (random_like(SEQUENCE, 1, HIDDEN, seed=seed) for seed in (8, 9))
    right = right_gradients(tokens, upstream)
    shard, upstream = (t.chunk(world.size)[world.rank] for t in (tokens, upstream))
    worst = {}
    for name, (tp, ep, etp) in (WRONG | RIGHT).items():
        sizes = {"expert_model_parallel_size": ep, "expert_tensor_parallel_size": etp}
        with experts_on_cpu(tensor=tp, **sizes):
            layer = moe_layer(expert_config(top_k=2))
            mean = 1 if tp == 2 else 2  # over the data-parallel ranks
            worst[name] = max(
                difference(
                    gradient, own_part(layer, at, gradient, right[global_name(layer, at)] / mean)
                )
                for at, gradient in trained(layer, shard, upstream).items()
                if "experts" in at
            )
    return worst


@room("expert-norm", ranks=2)
def expert_norm(world: World) -> dict[str, float]:
    """The norm of gradients of ones: of two experts, one a rank, at EP = 2 with TP = 2."""
    norms = {}
    for name, drawn in (("initialized", True), ("loaded", False)):
        with experts_on_cpu(tensor=2, expert_model_parallel_size=2, expert_tensor_parallel_size=1):
            settings = expert_config(top_k=2, perform_initialization=drawn)
            experts = moe_layer(settings).experts
            for parameter in experts.parameters():
                parameter.grad = torch.ones_like(parameter)
            group = parallel_state.get_expert_tensor_model_pipeline_parallel_group()
            norms[name] = norm_of(experts.parameters(), group)
            right = (sum(p.numel() for p in experts.parameters()) * world.size) ** 0.5
    return norms | {"right": right, "ratio": norms["loaded"] / right}


@room("auxiliary-loss-batch", ranks=1)
def auxiliary_loss_batch(world: World) -> dict[str, float]:
    """The router's gradient from the sequence loss alone: two sequences at once, or by turns."""
    tokens = random_like(SEQUENCE, 2, HIDDEN, seed=8)
    with experts_on_cpu():
        settings = expert_config(
            top_k=1, moe_router_pre_softmax=True, calculate_per_token_loss=True,
            moe_router_load_balancing_type="seq_aux_loss", moe_aux_loss_coeff=1.0,
        )  # fmt: skip
        at_once = router_gradient(settings, [tokens])
        by_turns = router_gradient(settings, list(tokens.split(1, dim=1)))
    return {
        "ratio": float(at_once.norm() / by_turns.norm()),
        "off the line": difference(2 * at_once, by_turns),
    }


@room("auxiliary-loss-tensor", ranks=2)
def auxiliary_loss_tensor(world: World) -> dict[str, float]:
    """The same for the loss over a micro-batch: its tokens cut over two tensor ranks, or whole."""
    tokens = random_like(SEQUENCE, 1, HIDDEN, seed=8)
    gradients = []
    for tensor in (1, 2):
        with experts_on_cpu(tensor=tensor):
            settings = expert_config(
                top_k=1, moe_router_pre_softmax=True, calculate_per_token_loss=True,
                moe_router_load_balancing_type="aux_loss", moe_aux_loss_coeff=1.0,
            )  # fmt: skip
            shard = tokens.chunk(tensor)[world.rank % tensor]
            gradients.append(router_gradient(settings, [shard]))
    whole, cut = gradients
    return {"ratio": float(cut.norm() / whole.norm()), "off the line": difference(2 * cut, whole)}


class Everyone(torch.autograd.Function):
    """Hand equal parts of the rows to every rank, and back: an all-to-all is its own adjoint."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor) -> torch.Tensor:
        """Exchange the rows."""
        dist.all_to_all_single(out := torch.empty_like(rows), rows.contiguous())
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Exchange the gradients."""
        return Everyone.forward(ctx, gradient)


@room("experts-beside-ddp", ranks=2)
def experts_beside_ddp(world: World) -> dict[str, float]:
    """A minimal model: torch's DDP averages what is dense; each rank has an expert of its own."""
    weights = random_like(2, HIDDEN, HIDDEN, seed=1)
    tokens = random_like(2, 4, HIDDEN, seed=2)  # of each rank; its first half is for expert 0
    dense = nn.parallel.DistributedDataParallel(nn.Linear(HIDDEN, HIDDEN).double())
    expert = nn.Parameter(weights[world.rank].clone())
    Everyone.apply(Everyone.apply(dense(tokens[world.rank])) @ expert).square().mean().backward()
    alone, both = dense.module, nn.Parameter(weights)
    alone.zero_grad()
    split = alone(tokens).view(2, 2, 2, HIDDEN)  # rank, expert, row
    (split @ both).square().mean().backward()
    assert expert.grad is not None and both.grad is not None
    right = both.grad[world.rank]
    return {
        "ratio": float(expert.grad.norm() / right.norm()),
        "off the line": difference(expert.grad, 2 * right),
    }
