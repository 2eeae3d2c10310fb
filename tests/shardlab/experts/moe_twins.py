"""One layer of experts, ours and megatron-core's MoELayer.

Each rank brings its own rows of one whole batch. The loss is a sum over all rows.

Dimensions: S sequence, B batch of a data rank, H hidden, E experts, F an expert's width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from costlab.implementations.megatron import experts as moe
from shardlab.comm import Axis, World
from shardlab.experts.config import ExpertConfig
from shardlab.experts.layer import ExpertAxes, ExpertLayer
from shardlab.gpt.config import GPTConfig
from shardlab.grid.grid import Grid
from shardlab.layers import sharding
from shardlab.layers.init import Init
from tests.shardlab.difference import random_like

S, B, H, F, E = 8, 2, 16, 24, 4
PLAIN = ExpertConfig(count=E, top_k=2, ffn=F)


@dataclass(frozen=True)
class Case:
    """A layout of the ranks, and the experts on it."""

    tensor: int = 1
    expert: int = 1
    expert_tensor: int = 1
    experts: ExpertConfig = PLAIN
    gated: bool = False

    def config(self) -> GPTConfig:
        return GPTConfig(
            layers=1, hidden=H, heads=4, ffn=F, vocab=8, sequence=S, bias=False,
            dtype=torch.float64, experts=self.experts, mlp="swiglu" if self.gated else "gelu",
        )  # fmt: skip

    def megatron(self) -> dict[str, Any]:
        """The same settings in Megatron's words."""
        e = self.experts
        kinds = {"aux_loss": e.aux_loss, "seq_aux_loss": e.sequence_aux_loss}
        kinds |= {"global_aux_loss": e.global_aux_loss}
        losses = {kind: weight for kind, weight in kinds.items() if weight}
        kind = "sinkhorn" if e.sinkhorn else list(losses) or "none"
        return {
            "experts": e.count, "top_k": e.top_k, "ffn": F, "dispatch": e.dispatch,
            "expert": self.expert, "expert_tensor": self.expert_tensor,
            "sequence_parallel": self.tensor > 1, "add_bias_linear": False,
            "moe_router_dtype": "fp64", "moe_router_load_balancing_type": kind,
            "moe_aux_loss_coeff": list(losses.values()) if isinstance(kind, list) else 0.0,
            "moe_z_loss_coeff": e.z_loss or None, "moe_router_score_function": e.scores,
            "moe_router_pre_softmax": e.pre_softmax, "moe_router_num_groups": e.groups,
            "moe_router_group_topk": e.top_groups, "moe_router_topk_scaling_factor": e.scaling,
            "moe_router_enable_expert_bias": e.bias_rate is not None,
            "moe_expert_capacity_factor": e.capacity, "moe_token_drop_policy": e.drop,
            "moe_pad_expert_input_to_capacity": e.pad,
            "moe_shared_expert_intermediate_size": e.shared,
            "moe_shared_expert_gate": e.shared_gate,
            **({"gated_linear_unit": True, "activation_func": silu} if self.gated else {}),
        }  # fmt: skip

    def to_megatron(self, named: dict[str, Tensor]) -> dict[str, Tensor]:
        """Order fc1's rows as Megatron does, all gates first."""
        return {
            name: x.unflatten(0, (-1, 2)).transpose(0, 1).flatten(0, 1)
            if self.gated and name.endswith("fc1.weight")
            else x
            for name, x in named.items()
        }

    def from_megatron(self, named: dict[str, Tensor]) -> dict[str, Tensor]:
        """Order fc1's rows in pairs."""
        return {
            name: x.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)
            if self.gated and name.endswith("fc1.weight")
            else x
            for name, x in named.items()
        }


def fp64() -> Init:
    """Parameters on torch's default device."""
    return Init(dtype=torch.float64, device=torch.get_default_device())


def whole_layer(case: Case) -> ExpertLayer:
    """All experts on one rank, with weights that make scores differ."""
    layer = ExpertLayer(case.config(), "layer", axis=Axis.alone(), init=fp64())
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            if parameter.requires_grad:
                parameter.copy_(random_like(*parameter.shape, seed=seed) / H**0.5)
            else:  # the bias of the choice
                parameter.copy_(torch.linspace(0, 0.2, E))
    return layer


def rows(grid: Grid, seed: int) -> Tensor:
    """This rank's [s, B, H] of a whole [S, B · data, H]."""
    whole = random_like(S, B * grid.data.size, H, seed=seed)
    local = whole.chunk(grid.data.size, 1)[grid.data.rank]
    return local.chunk(grid.tensor.size)[grid.tensor.rank].contiguous()


def grid_of(world: World, case: Case) -> Grid:
    return Grid(
        world=world, tensor=case.tensor, expert=case.expert, expert_tensor=case.expert_tensor
    )


def backward(layer: nn.Module, grid: Grid) -> dict[str, Tensor]:
    """y, and the gradients that backward leaves on this rank, before anybody sums them."""
    x = rows(grid, seed=100).requires_grad_()
    y = layer(x)
    y = y[0] if isinstance(y, tuple) else y
    y.backward(rows(grid, seed=101))
    assert x.grad is not None
    seen = {"y": y.detach(), "dx": x.grad}
    return seen | {n: p.grad for n, p in layer.named_parameters() if p.grad is not None}


def ours(case: Case, grid: Grid) -> tuple[ExpertLayer, dict[str, Tensor]]:
    layer = ExpertLayer(
        case.config(), "layer", axis=grid.tensor, axes=ExpertAxes.of(grid),
        sequence_parallel=case.tensor > 1, init=fp64(),
    )  # fmt: skip
    sharding.load_whole(layer, dict(whole_layer(case).named_parameters()))
    return layer, backward(layer, grid)


def run_megatron_layer(case: Case, grid: Grid, like: ExpertLayer) -> dict[str, Tensor]:
    """Return a MoELayer's output and gradients, by our names, under Megatron's parallel state."""
    layer = moe.layer(moe.config(hidden=H, **case.megatron()))
    first = grid.expert.rank * (E // case.expert)
    moe.copy(case.to_megatron(dict(like.named_parameters())), layer, first)
    if case.experts.bias_rate is not None:
        layer.router.expert_bias.copy_(like.router.expert_bias.detach())
    by_ours = {t: o for o, t in moe.names(layer, first).items()}
    seen = {by_ours.get(n, n): value for n, value in backward(layer, grid).items()}
    return case.from_megatron(seen)
