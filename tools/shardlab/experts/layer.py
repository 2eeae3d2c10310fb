"""The layer that a mixture of experts puts in the place of the feed-forward pair.

Expert e lies on rank e // (E / ranks) of the expert axis. All that differs between the ranks that
hold the same experts is which tokens they see, so an expert's gradient is a sum over those ranks,
its *copies*, which needn't be the data ranks: its parameters are marked with them.
`MoELayer` in megatron/core/transformer/moe/moe_layer.py.

Dimensions: S sequence, B batch, H hidden, F an expert's width, E experts; N rows of one expert;
lower case: this rank's share.
"""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, sigmoid

from shardlab.comm import Axis
from shardlab.experts.dispatch import Places, gathered
from shardlab.experts.router import Router
from shardlab.gpt.config import GPTConfig
from shardlab.gpt.mlp import MLP
from shardlab.grid.grid import Grid
from shardlab.grid.rules import check_divides, refuse
from shardlab.layers import partial_gradients
from shardlab.layers.init import DEFAULT, Init
from shardlab.layers.ops import reduce_scatter
from shardlab.layers.sharding import CopyableModule, mark_copies

Pieces = tuple[Tensor, ...]


@dataclass(frozen=True)
class ExpertAxes:
    """The axes that a layer of experts works on.

    Attributes:
        expert: the experts are dealt out over these ranks.
        expert_tensor: these share this rank's experts.
        joint: both, the latter running fastest.
        copies: these hold the same experts.
        parts: these have parts of the same sequences: tensor × context.
        tokens: all that route by copies of one router: tensor × context × data.
    """

    expert: Axis
    expert_tensor: Axis
    joint: Axis
    copies: Axis
    parts: Axis
    tokens: Axis

    @classmethod
    def of(cls, grid: Grid) -> Self:
        """Return those of a grid; every rank calls this.

        Raises:
            ValueError: the grid's order lets expert run faster than tensor.
        """
        joint, size = grid.axis("expert_tensor", "expert"), grid.expert_tensor.size
        begin = joint.rank - grid.expert_tensor.rank
        if joint.ranks[begin : begin + size] != grid.expert_tensor.ranks:
            raise ValueError(
                f"order {grid.experts.order!r} lets 'ep' run faster than 'tp', and {size} ranks "
                "share an expert: put 'tp' before 'ep'"
            )
        cut = ("tensor", "context") if grid.context.size > 1 else ("tensor",)
        parts, tokens = grid.axis(*cut), grid.axis(*cut, "data")
        return cls(grid.expert, grid.expert_tensor, joint, grid.expert_data, parts, tokens)

    @classmethod
    def alone(cls) -> Self:
        """Return those of one rank."""
        return cls(*(Axis.alone(field.name) for field in fields(cls)))


class Expert(MLP):
    """Y = (GELU(X W₁ᵀ + b₁) · p) W₂ᵀ + b₂ · p, or this rank's part of the sum over F.

    Args:
        config: of the model; its `ffn` is the expert's.
        name: of the expert in the whole model.
        axes: of the experts.
        init: how parameters start.

    Shapes: rows [N, H] and p [N, 1], in pieces by where they came from -> [N, H], in such pieces;
    fc1.weight [f, H]; fc2.weight [H, f].
    """

    def __init__(self, config: GPTConfig, name: str, *, axes: ExpertAxes, init: Init) -> None:
        """Make the two linears."""
        super().__init__(config, name, axis=axes.expert_tensor, init=init)
        # Nothing crosses an axis here: rows come and go, and parts of the sum over F, in dispatch.
        self.fc1.axis = self.fc2.axis = Axis.alone()
        self.fc2.skip_bias_add = True
        for parameter in self.parameters():
            mark_copies(parameter, axes.copies)

    def forward(self, rows: Pieces, probs: Pieces) -> Pieces:  # type: ignore[override]
        """Return the weighed output."""
        x_NH, probs_N1 = (x[0] if len(x) == 1 else torch.cat(x) for x in (rows, probs))
        y_NH = self.fc2((gelu(self.fc1(x_NH)) * probs_N1).to(x_NH.dtype))
        if self.fc2.bias is not None:
            y_NH = y_NH + (self.fc2.bias * probs_N1).to(y_NH.dtype)
        return (y_NH,) if len(rows) == 1 else torch.split(y_NH, [len(piece) for piece in rows])


class ExpertLayer(CopyableModule):
    """Route, dispatch, compute, combine; the shared expert beside it.

    Args:
        config: of the model; its `experts` are these.
        name: of this layer in the whole model.
        axis: the tensor axis.
        axes: of the experts; None for one rank that holds all.
        sequence_parallel: x arrives and leaves cut along S.
        init: how parameters start.
        context: the axis that cuts sequences, as Attention does; x is this rank's part.

    Shapes: x [S, B, H], padding [S, B] -> [S, B, H], or [s, B, H], [s, B] -> [s, B, H].

    Raises:
        ValueError: the ranks can't share the experts equally, or a tensor axis without sequence
            parallelism, or biases on an expert tensor axis; or `axes` are of another grid.
    """

    def __init__(
        self, config: GPTConfig, name: str, *, axis: Axis, axes: ExpertAxes | None = None,
        sequence_parallel: bool = False, init: Init = DEFAULT, context: Axis | None = None,
    ) -> None:  # fmt: skip
        """Make the router and this rank's experts."""
        super().__init__()
        assert config.experts
        axes = self.axes = axes or ExpertAxes.alone()
        self.config = experts = config.experts
        parts = axis.size * (context.size if context else 1)
        check_divides("expert", axes.expert.size, experts.count, "experts")
        _refuse(config, axis, axes, parts, whole=not sequence_parallel)
        self.router = Router(config, f"{name}.router", axis, axes.parts, axes.tokens, init=init)
        local = experts.count // axes.expert.size
        mine = range(axes.expert.rank * local, (axes.expert.rank + 1) * local)
        one = replace(config, ffn=experts.ffn or config.ffn_width)
        self.experts = nn.ModuleDict(
            {str(e): Expert(one, f"{name}.experts.{e}", axes=axes, init=init) for e in mine}
        )
        self.shared = self.shared_gate = None
        if experts.shared:
            self.shared = MLP(
                replace(config, ffn=experts.shared), f"{name}.shared", axis=axis,
                sequence_parallel=sequence_parallel, init=init,
            )  # fmt: skip
        if experts.shared_gate:
            self.shared_gate = init.replicated(f"{name}.shared_gate", (1, config.hidden))
            if sequence_parallel:
                partial_gradients.mark(self.shared_gate)

    def forward(self, x_sBH: Tensor, padding_sB: Tensor | None = None) -> Tensor:
        """Return the sum of what a token's experts make of it; no expert sees a padding token."""
        beside_sBH = 0 if self.shared is None else self.shared(x_sBH)
        if self.shared_gate is not None:
            beside_sBH = beside_sBH * sigmoid(linear(x_sBH, self.shared_gate))
        probs_TE, chosen_TE = self.router(x_sBH, padding_sB)
        x_TH, joint, copies = x_sBH.flatten(0, 1), self.axes.joint, self.axes.expert_tensor.size
        gather = self.config.dispatch == "all-gather"
        if gather:
            x_TH, probs_TE, chosen_TE = gathered(x_TH, probs_TE, chosen_TE, joint, copies)
            joint, copies = Axis.alone(), 1
        places = Places(joint, copies, chosen_TE, even=self.config.pad)
        rows, probs = (torch.split(x, places.counts) for x in places.dispatch(x_TH, probs_TE))
        local = len(self.experts)
        made = (e(rows[i::local], probs[i::local]) for i, e in enumerate(self.experts.values()))
        y_MH = torch.cat([piece for by_expert in zip(*made, strict=True) for piece in by_expert])
        if torch.is_grad_enabled() and not rows[0].requires_grad:
            # What comes in is frozen on every rank, experts perhaps on this one alone: backward
            # must reach it all the same, or the others wait for it there.
            trained = torch.tensor(float(y_MH.requires_grad), device=y_MH.device)
            y_MH.requires_grad_(bool(self.axes.joint.all_reduce(trained)))
        y_TH = places.combine(y_MH)
        y_sBH = (reduce_scatter(y_TH, self.axes.joint) if gather else y_TH).view_as(x_sBH)
        return y_sBH if self.shared is None else y_sBH + beside_sBH


def _refuse(config: GPTConfig, axis: Axis, axes: ExpertAxes, parts: int, *, whole: bool) -> None:
    refuse(
        (axis.size > 1 and whole, f"{axis.size} tensor ranks would each route the "
         "same tokens, and every expert see them again; give sequence_parallel=True"),
        (config.bias and axes.expert_tensor.size > 1, f"{axes.expert_tensor.size} ranks that share "
         "an expert would each add its biases; choose GPTConfig(bias=False), or expert_tensor = 1"),
        (axes.parts.size != parts, f"{parts} tensor and context ranks share a sequence, and the "
         f"experts' axes say that {axes.parts.size} do: give ExpertAxes.of(grid) of the same grid"),
    )  # fmt: skip
