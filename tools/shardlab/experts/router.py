"""The router: a linear to one logit an expert, the choice, and what keeps the choice balanced.

It computes in fp32 at least. Under sequence parallelism each tensor rank routes its own rows, so
its weights' gradients are partial. `TopKRouter` in megatron/core/transformer/moe/router.py.

Dimensions: S sequence, B batch, H hidden, E experts, T = S·B; lower case: this rank's share.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from shardlab.comm import Axis
from shardlab.experts import balance, routing
from shardlab.experts.config import ExpertConfig
from shardlab.layers import partial_gradients
from shardlab.layers.engine import Kept, inside_backward
from shardlab.layers.init import Init
from shardlab.layers.ops import uncompiled
from shardlab.layers.sharding import CopyableModule


class Router(CopyableModule):
    """Weights and choice of experts for each token.

    Args:
        config: of the experts.
        hidden: H.
        tensor: the tensor axis.
        parts: the ranks that have parts of the same sequences: tensor × context.
        tokens: those that route tokens by copies of this router: tensor × context × data.
        bias: the linear has one.
        name: of the router in the whole model.
        init: how parameters start.

    Attributes:
        expert_bias: what steers the choice; frozen, and moved by `end_step`.
        scale: what a micro-batch's loss is multiplied by before its backward, or "tokens" where it
            is a sum over tokens; auxiliary losses get the same.
        auxiliary: this rank's part of the auxiliary losses of the last forward, weighed.

    Shapes: x [s, B, H] -> weights [T, E], chosen [T, E].
    """

    def __init__(
        self, config: ExpertConfig, hidden: int, *, tensor: Axis, parts: Axis, tokens: Axis,
        bias: bool, name: str, init: Init,
    ) -> None:  # fmt: skip
        """Draw the weights."""
        super().__init__()
        self.config, self.parts, self.tokens = config, parts, tokens
        self._contexts = parts.size // tensor.size
        self.scale: float | str = 1.0
        self.auxiliary: Tensor | None = None
        self.weight = init.replicated(f"{name}.weight", (config.count, hidden))
        self.bias = init.constant(0.0, config.count) if bias else None
        self.expert_bias = None
        if config.bias_rate is not None:
            zeros = torch.zeros(config.count, dtype=torch.float32, device=init.device)
            self.expert_bias = nn.Parameter(zeros, requires_grad=False)
        if tensor.size > 1:
            for parameter in (self.weight, self.bias):
                if parameter is not None:
                    partial_gradients.mark(parameter)
        self._load_E: Tensor | None = None  # of the step so far: choices, on this rank
        self._seen_E: Tensor | None = None  # for the loss over the whole batch: on all ranks
        self._times = 0
        self._means = Kept[Tensor](name)  # of it, as each forward saw it

    def forward(self, x_sBH: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the choice."""
        wide = torch.promote_types(x_sBH.dtype, torch.float32)
        bias = None if self.bias is None else self.bias.to(wide)
        logits_sBE = linear(x_sBH.to(wide), self.weight.to(wide), bias)
        logits_TE, config = logits_sBE.flatten(0, 1), self.config
        self.auxiliary = None
        if config.z_loss and self.training:
            z = balance.z_loss(logits_TE) * (config.z_loss / self.parts.size)
            logits_TE = self._attached(logits_TE, z)
        if config.sinkhorn:
            probs_TE, chosen_TE = routing.choose_by_sinkhorn(logits_TE, config, self.training)
        else:
            probs_TE, chosen_TE = routing.choose(logits_TE, config, self.expert_bias)
        if self.expert_bias is not None and self.training and not inside_backward():
            load_E = chosen_TE.sum(0)  # before rows are dropped, and places padded
            self._load_E = load_E if self._load_E is None else self._load_E + load_E
        if config.capacity is not None:
            probs_TE, chosen_TE = routing.drop(probs_TE, chosen_TE, config)
        if config.balanced and self.training:
            probs_TE = self._balanced(probs_TE, logits_TE, sequences=x_sBH.shape[1])
        return probs_TE, chosen_TE

    def _balanced(self, probs_TE: Tensor, logits_TE: Tensor, *, sequences: int) -> Tensor:
        """Attach the losses that pay for an uneven load."""
        config, count = self.config, self.config.count
        scores_TE, chosen_TE = balance.scores(logits_TE, config)
        # Each rank has its part of one loss, and gradients are then averaged over data ranks.
        whole = config.global_aux_loss * (self.tokens.size // self.parts.size)
        for weight, apart, load_of in (
            (config.aux_loss, 1, self._load), (config.sequence_aux_loss, sequences, self._load),
            (whole, 1, self._load_of_step),
        ):  # fmt: skip
            if weight:
                by_E, chosen_E = (x.reshape(-1, apart * count) for x in (scores_TE, chosen_TE))
                loss = balance.load_loss(by_E, load_of(chosen_E), experts=count, top_k=config.top_k)
                probs_TE = self._attached(probs_TE, loss * weight / apart)
        return probs_TE

    def _load(self, chosen_TE: Tensor) -> Tensor:
        """Return the load over all parts of the sequences."""
        return self.parts.all_reduce(chosen_TE.sum(0))

    @uncompiled
    def _load_of_step(self, chosen_TE: Tensor) -> Tensor:
        """Return the mean load over all ranks and the micro-batches so far.

        A recomputation adds nothing, and gets what its forward got: under a pipeline others have
        been forward since.
        """

        def mean() -> Tensor:
            load_E = self.tokens.all_reduce(chosen_TE.sum(0)).float()
            self._seen_E = load_E if self._seen_E is None else self._seen_E + load_E
            self._times += 1
            return self._seen_E / self._times

        return self._means(mean)

    def _attached(self, x: Tensor, loss: Tensor) -> Tensor:
        part = loss.detach().float()
        self.auxiliary = part if self.auxiliary is None else self.auxiliary + part
        # Context ranks' parts are averaged, as replicas' gradients are; tensor ranks' are summed.
        scale = self.scale
        scale = x.shape[0] * self.parts.size if isinstance(scale, str) else scale * self._contexts
        return balance.attach(x, loss if scale == 1 else loss * scale)

    @torch.no_grad()
    def end_step(self) -> None:
        """Move the bias towards experts with less than the mean load; begin to count anew.

        Every rank calls it after a step's last backward (Wang et al., "Auxiliary-Loss-Free Load
        Balancing", algorithm 1; `get_updated_expert_bias` in Megatron's moe_utils.py).
        """
        if self.expert_bias is not None and self._load_E is not None:
            load_E = self.tokens.all_reduce(self._load_E).float()
            assert self.config.bias_rate is not None
            self.expert_bias.add_((load_E.mean() - load_E).sign() * self.config.bias_rate)
        self._load_E = self._seen_E = None
        self._times = 0
        self._means.clear()
