"""The layer of experts that replaces the feed-forward pair in a mixture of experts.

Expert e is on rank e // (E / ranks) of the expert axis. Ranks that hold the same experts see
different tokens, so an expert's gradient is a sum over those ranks, its *copies*. They aren't
always the data ranks, so the expert's parameters are marked with them. Megatron's is `MoELayer` in
megatron/core/transformer/moe/moe_layer.py.

Dimensions: S sequence, B batch, H hidden, F an expert's width, E experts; N rows of one expert;
lower case: this rank's share.
"""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, sigmoid

from shardlab.comm import Axis
from shardlab.experts.dispatch import DispatchPlan, all_gather_rows
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
    """The axes that a layer of experts uses.

    Attributes:
        expert: the ranks over which the experts are distributed.
        expert_tensor: the ranks that share this rank's experts.
        joint: expert tensor × expert; expert tensor varies fastest.
        copies: the ranks that hold the same experts.
        parts: the ranks that have parts of the same sequences: tensor × context.
        tokens: the ranks that hold copies of one router: tensor × context × data.
    """

    expert: Axis
    expert_tensor: Axis
    joint: Axis
    copies: Axis
    parts: Axis
    tokens: Axis

    @classmethod
    def of(cls, grid: Grid) -> Self:
        """Return the axes of a grid; every rank must call this.

        Raises:
            ValueError: in the grid's order, expert is faster than tensor.
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
        """Return the axes of a single rank."""
        return cls(*(Axis.alone(field.name) for field in fields(cls)))


class Expert(MLP):
    """Y = (GELU(X W₁ᵀ + b₁) · p) W₂ᵀ + b₂ · p, or this rank's part of the sum over F; or SwiGLU.

    Args:
        config: the model's settings; `ffn` is the expert's width.
        name: the expert's name in the whole model.
        axes: the experts' axes.
        init: the initial values of parameters.

    Shapes: rows [N, H] and p [N, 1], in pieces by source rank -> [N, H], in the same pieces;
    fc1.weight [f, H], or gated [2f, H]; fc2.weight [H, f].
    """

    def __init__(self, config: GPTConfig, name: str, *, axes: ExpertAxes, init: Init) -> None:
        """Make the two linears."""
        super().__init__(config, name, axis=axes.expert_tensor, init=init)
        # No collective here: dispatch sends the rows and combines the parts of the sum over F.
        self.fc1.axis = self.fc2.axis = Axis.alone()
        self.fc2.skip_bias_add = True
        for parameter in self.parameters():
            mark_copies(parameter, axes.copies)

    def forward(self, rows: Pieces, probs: Pieces) -> Pieces:  # type: ignore[override]
        """Return the output, weighted by p."""
        x_NH, probs_N1 = (x[0] if len(x) == 1 else torch.cat(x) for x in (rows, probs))
        y_NH = self.fc2((self.activate(self.fc1(x_NH)) * probs_N1).to(x_NH.dtype))
        if self.fc2.bias is not None:
            y_NH = y_NH + (self.fc2.bias * probs_N1).to(y_NH.dtype)
        return (y_NH,) if len(rows) == 1 else torch.split(y_NH, [len(piece) for piece in rows])


class ExpertLayer(CopyableModule):
    """Route, dispatch, compute and combine; and add the shared expert's output.

    Args:
        config: the model's settings, with `experts`.
        name: the layer's name in the whole model.
        axis: the tensor axis.
        axes: the experts' axes; None for one rank that holds all experts.
        sequence_parallel: x arrives and leaves cut along S.
        init: the initial values of parameters.
        context: the context axis, over which sequences are cut; x is this rank's part.

    Shapes: x [S, B, H], padding [S, B] -> [S, B, H], or [s, B, H], [s, B] -> [s, B, H].

    Raises:
        ValueError: the ranks can't share the experts equally, there is a tensor axis without
            sequence parallelism, biases on an expert tensor axis, or `axes` of another grid.
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
        _check(config, axis, axes, parts, tokens_replicated=not sequence_parallel)
        self.router = Router(config, f"{name}.router", axis, axes.parts, axes.tokens, init=init)
        local = experts.count // axes.expert.size
        local_experts = range(axes.expert.rank * local, (axes.expert.rank + 1) * local)
        expert_config = replace(config, ffn=experts.ffn or config.ffn_width)
        self.experts = nn.ModuleDict(
            {
                str(e): Expert(expert_config, f"{name}.experts.{e}", axes=axes, init=init)
                for e in local_experts
            }
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
        """Return the sum of each token's experts' outputs; no expert sees a padding token."""
        shared_sBH = 0 if self.shared is None else self.shared(x_sBH)
        if self.shared_gate is not None:
            shared_sBH = shared_sBH * sigmoid(linear(x_sBH, self.shared_gate))
        probs_TE, chosen_TE = self.router(x_sBH, padding_sB)
        x_TH, joint, copies = x_sBH.flatten(0, 1), self.axes.joint, self.axes.expert_tensor.size
        all_gathers = self.config.dispatch == "all-gather"
        if all_gathers:
            x_TH, probs_TE, chosen_TE = all_gather_rows(x_TH, probs_TE, chosen_TE, joint, copies)
            joint, copies = Axis.alone(), 1
        plan = DispatchPlan(joint, copies, chosen_TE, even=self.config.pad)
        rows, probs = (torch.split(x, plan.counts) for x in plan.dispatch(x_TH, probs_TE))
        local = len(self.experts)
        outputs = (e(rows[i::local], probs[i::local]) for i, e in enumerate(self.experts.values()))
        y_MH = torch.cat([piece for by_expert in zip(*outputs, strict=True) for piece in by_expert])
        if torch.is_grad_enabled() and not rows[0].requires_grad:
            # The rows need no gradient, and perhaps only this rank's experts are frozen. Backward
            # must still pass here on every rank, because the other ranks wait in its collective.
            trained = torch.tensor(float(y_MH.requires_grad), device=y_MH.device)
            y_MH.requires_grad_(bool(self.axes.joint.all_reduce(trained)))
        y_TH = plan.combine(y_MH)
        y_sBH = (reduce_scatter(y_TH, self.axes.joint) if all_gathers else y_TH).view_as(x_sBH)
        return y_sBH if self.shared is None else y_sBH + shared_sBH


def _check(
    config: GPTConfig, axis: Axis, axes: ExpertAxes, parts: int, *, tokens_replicated: bool
) -> None:
    refuse(
        (axis.size > 1 and tokens_replicated, f"{axis.size} tensor ranks would each route the "
         "same tokens, and every expert see them again; give sequence_parallel=True"),
        (config.bias and axes.expert_tensor.size > 1, f"{axes.expert_tensor.size} ranks that share "
         "an expert would each add its biases; choose GPTConfig(bias=False), or expert_tensor = 1"),
        (axes.parts.size != parts, f"{parts} tensor and context ranks share a sequence, and the "
         f"experts' axes say that {axes.parts.size} do: give ExpertAxes.of(grid) of the same grid"),
    )  # fmt: skip
