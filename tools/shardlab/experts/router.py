"""The router's module: logits, one an expert, and what keeps the choice (routing.py) balanced.

It computes in fp32 at least. Under sequence parallelism each tensor rank routes its own rows, so
its weights' gradients are partial. `TopKRouter` in megatron/core/transformer/moe/router.py.

A stage of a pipeline can't hand a loss of its own to the last one, so each auxiliary loss is
attached to something that backward will pass: forward changes nothing, backward adds the loss's
gradient, as Megatron's `MoEAuxLossAutoScaler` does. What is trained is then

    mean over micro-batches and data ranks of (loss + auxiliary losses)

whatever the grid; each tensor or context rank adds the part of its own rows.

Dimensions: S sequence, B batch, H hidden, E experts, T = S·B; lower case: this rank's share.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from shardlab.comm import Axis
from shardlab.experts import routing
from shardlab.experts.dispatch import through
from shardlab.gpt.config import GPTConfig
from shardlab.layers import partial_gradients
from shardlab.layers.engine import Kept, inside_backward
from shardlab.layers.init import Init
from shardlab.layers.ops import uncompiled
from shardlab.layers.sharding import CopyableModule


class Router(CopyableModule):
    """Weights and choice of experts for each token.

    Args:
        config: of the model; its `experts` are these.
        name: of the router in the whole model.
        axis: the tensor axis.
        parts: the ranks that have parts of the same sequences: tensor × context.
        tokens: all ranks that route by copies of this router.
        init: how parameters start.

    Attributes:
        expert_bias: what steers the choice; frozen, and moved by `end_step`.
        scale: what a micro-batch's loss is multiplied by before its backward, or "tokens" where it
            is a sum over tokens; auxiliary losses get the same.

    Shapes: x [s, B, H] -> weights [T, E], chosen [T, E].
    """

    def __init__(
        self, config: GPTConfig, name: str, axis: Axis, parts: Axis, tokens: Axis, *, init: Init
    ) -> None:
        """Draw the weights."""
        super().__init__()
        assert config.experts
        self.config, count = config.experts, config.experts.count
        self.parts, self.tokens, self._contexts = parts, tokens, parts.size // axis.size
        self.scale: float | str = 1.0
        self.weight = init.replicated(f"{name}.weight", (count, config.hidden))
        self.bias = init.constant(0.0, count) if config.bias else None
        if axis.size > 1:
            for parameter in self.parameters():
                partial_gradients.mark(parameter)
        self.expert_bias = None
        if self.config.bias_rate is not None:
            self.expert_bias = replace(init, dtype=torch.float32).constant(0.0, count)
            self.expert_bias.requires_grad_(False)
        self._load_E: Tensor | int = 0  # of the step so far: choices, on this rank
        self._loads: list[Tensor] = []  # for the loss over the whole batch: on all ranks
        self._means = Kept[Tensor](name)  # of it, as each forward saw it
        self._gradients = Kept[bool](name)  # whether each forward made gradients

    def forward(self, x_sBH: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the choice."""
        config, training = self.config, self.training
        wide = torch.promote_types(x_sBH.dtype, torch.float32)
        bias = None if self.bias is None else self.bias.to(wide)
        logits_TE = linear(x_sBH.to(wide), self.weight.to(wide), bias).flatten(0, 1)
        if config.z_loss and training:
            z = routing.z_loss(logits_TE) * (config.z_loss / self.parts.size)
            logits_TE = self._attached(logits_TE, z)
        probs_TE, chosen_TE = routing.choose(logits_TE, config, self.expert_bias, training=training)
        if self.expert_bias is not None and training and self._trains_now():
            # Before rows are dropped, and places padded.
            self._load_E = self._load_E + chosen_TE.sum(0)
        probs_TE, chosen_TE = routing.drop(probs_TE, chosen_TE, config)
        if config.balanced and training:
            probs_TE = self._balanced(probs_TE, logits_TE, sequences=x_sBH.shape[1])
        return probs_TE, chosen_TE

    @uncompiled
    def _trains_now(self) -> bool:
        """Whether this forward is the one of its micro-batch that counts.

        A forward without gradients is an evaluation; or the first of two under torch's reentrant
        checkpoint, of which the recomputation counts.
        """
        counted = self._gradients(torch.is_grad_enabled)
        return counted != inside_backward()

    def _balanced(self, probs_TE: Tensor, logits_TE: Tensor, *, sequences: int) -> Tensor:
        """Attach the losses that pay for an uneven load."""
        config, count = self.config, self.config.count
        scores_TE, chosen_TE = routing.balance_scores(logits_TE, config)
        # Each rank has its part of one loss, and gradients are then averaged over data ranks.
        whole = config.global_aux_loss * (self.tokens.size // self.parts.size)
        for weight, apart, over_all in (
            (config.aux_loss, 1, self.parts.all_reduce),
            (config.sequence_aux_loss, sequences, self.parts.all_reduce),
            (whole, 1, self._mean_of_step),
        ):
            if weight:
                by_E, chosen_E = (x.reshape(-1, apart * count) for x in (scores_TE, chosen_TE))
                loss = routing.load_loss(by_E, over_all(chosen_E.sum(0)), config)
                probs_TE = self._attached(probs_TE, loss * weight / apart)
        return probs_TE

    @uncompiled
    def _mean_of_step(self, load_E: Tensor) -> Tensor:
        """Return the mean load over all ranks and the micro-batches so far.

        A recomputation adds nothing, and gets what its forward got: under a pipeline others have
        been forward since.
        """

        def mean() -> Tensor:
            self._loads.append(self.tokens.all_reduce(load_E).float())
            return torch.stack(self._loads).mean(0)

        return self._means(mean)

    def _attached(self, x: Tensor, loss: Tensor) -> Tensor:
        # Context ranks' parts are averaged, as replicas' gradients are; tensor ranks' are summed.
        scale = self.scale
        scale = len(x) * self.parts.size if isinstance(scale, str) else scale * self._contexts
        return attached(x, loss, scale)

    @torch.no_grad()
    def end_step(self) -> Tensor | None:
        """Move the bias towards experts with less than the mean load; begin to count from zero.

        Every rank calls it after a step's last backward (Wang et al., "Auxiliary-Loss-Free Load
        Balancing", algorithm 1; `get_updated_expert_bias` in Megatron's moe_utils.py). Returns the
        change [E], None where there is no bias: under FSDP, which holds the bias, the caller adds
        it there (`StepGradients`).
        """
        delta_E = None
        if self.expert_bias is not None and isinstance(self._load_E, Tensor):
            load_E = self.tokens.all_reduce(self._load_E).float()
            delta_E = (load_E.mean() - load_E).sign() * (self.config.bias_rate or 0.0)
            if isinstance(self.expert_bias, nn.Parameter):
                self.expert_bias.add_(delta_E)
        self.forget()
        return delta_E

    def forget(self) -> None:
        """Forget the loads of the step so far, of one that is given up too."""
        self._load_E, self._loads = 0, []
        self._means.clear()
        self._gradients.clear()


def attached(x: Tensor, loss: Tensor, scale: float) -> Tensor:
    """Hand on `x`; backward through it also sends `loss` a gradient, which is `scale`."""

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad.new_full((), scale)

    return through(lambda x, _: (x.view_as(x),), backward, x, loss)[0]
