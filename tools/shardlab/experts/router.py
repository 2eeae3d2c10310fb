"""The router: one logit for each expert, and the losses and the bias that balance the choice.

The choice itself is in routing.py. The router computes in fp32 at least. Under sequence parallelism
each tensor rank routes its own rows, so the gradients of the router's weights are partial.
Megatron's is `TopKRouter` in megatron/core/transformer/moe/router.py.

A pipeline stage can't pass a loss of its own to the last stage. Each auxiliary loss is therefore
attached to a tensor that backward passes: it changes nothing in forward, and backward adds the
loss's gradient, as Megatron's `MoEAuxLossAutoScaler` does. The objective is then

    mean over micro-batches and data ranks of (loss + auxiliary losses)

on any grid; each tensor or context rank adds the part of its own rows. If losses are sums over
tokens, each micro-batch's auxiliary losses are weighted by its number of counted tokens:

    sum of (loss + counted tokens · auxiliary losses) / counted tokens of all micro-batches

Dimensions: S sequence, B batch, H hidden, E experts, T = S·B; lower case: this rank's share.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from shardlab.comm import Axis
from shardlab.experts import routing
from shardlab.experts.dispatch import apply_pair
from shardlab.gpt.config import GPTConfig
from shardlab.layers import partial_gradients
from shardlab.layers.engine import RecomputeCache, inside_backward
from shardlab.layers.init import Init
from shardlab.layers.ops import uncompiled
from shardlab.layers.sharding import CopyableModule

Count = Tensor | float
Counts = tuple[Count, Count]  # of a micro-batch, and of all replicas' micro-batches


class Router(CopyableModule):
    """Weights and choice of experts for each token.

    Args:
        config: the model's settings, with `experts`.
        name: the router's name in the whole model.
        axis: the tensor axis.
        parts: the ranks that have parts of the same sequences: tensor × context.
        tokens: the ranks that hold copies of this router.
        init: the initial values of parameters.

    Attributes:
        expert_bias: the bias that is added for the choice; frozen, and updated by `end_step`.
        scale: the factor of a micro-batch's loss before its backward, or "tokens" if the loss is a
            sum over tokens; auxiliary losses get the same factor.
        counted: with "tokens", the number of counted tokens in the next micro-batch: of the ranks
            that share its sequences, and of all replicas (`StepGradients.begin` sets it). None if
            all tokens that aren't padding count.
        weights: the number of tokens by which each auxiliary loss of this step was weighted, if
            `counted` is None.

    Shapes: x [s, B, H], padding [s, B] -> weights [T, E], chosen [T, E].
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
        self.counted: Counts | None = None
        self.weights: list[Count] = []
        self.weight = init.replicated(f"{name}.weight", (count, config.hidden))
        self.bias = init.constant(0.0, count) if config.bias else None
        if axis.size > 1:
            for parameter in self.parameters():
                partial_gradients.mark(parameter)
        self.expert_bias = None
        if self.config.bias_rate is not None:
            self.expert_bias = replace(init, dtype=torch.float32).constant(0.0, count)
            self.expert_bias.requires_grad_(False)
        self._load_E: Tensor | int = 0  # choices of each expert in this step, on this rank
        # For the loss over the whole batch: all ranks' load of a forward, and whether it made
        # gradients.
        self._loads: list[tuple[Tensor, bool]] = []
        self._means = RecomputeCache[Tensor](name)  # the mean load that each forward saw
        self._gradients = RecomputeCache[bool](name)  # whether each forward made gradients
        self._counts = RecomputeCache[Counts](name)  # `counted` at each forward

    def forward(self, x_sBH: Tensor, padding_sB: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the weights and the choice; a token whose `padding_sB` is true has no expert."""
        config, training = self.config, self.training
        wide = torch.promote_types(x_sBH.dtype, torch.float32)
        bias = None if self.bias is None else self.bias.to(wide)
        logits_TE = linear(x_sBH.to(wide), self.weight.to(wide), bias).flatten(0, 1)
        routed_T = None if padding_sB is None else ~padding_sB.flatten()
        scales: Counts = (1.0, 1.0)
        if training and (config.z_loss or config.balanced):
            tokens = self._count(logits_TE, routed_T)
            scales = self._scales(tokens, routed_T)
            if config.z_loss:
                routed_TE = logits_TE if routed_T is None else logits_TE[routed_T]
                z = routing.z_loss(routed_TE) * (config.z_loss * (len(routed_TE) / max(tokens, 1)))
                logits_TE = self._attach(logits_TE, z, scales, 0)
        probs_TE, chosen_TE = self._choose(logits_TE, routed_T)
        if self.expert_bias is not None and training and self._counts_load():
            # The load counts before rows are dropped or padded.
            self._load_E = self._load_E + chosen_TE.sum(0)
        probs_TE, chosen_TE = routing.drop(probs_TE, chosen_TE, config)
        if config.balanced and training:
            scores = routing.balance_scores(logits_TE, config)
            if routed_T is not None:
                scores = scores[0] * routed_T.unsqueeze(1), scores[1] & routed_T.unsqueeze(1)
            probs_TE = self._attach_load_losses(probs_TE, scores, scales, sequences=x_sBH.shape[1])
        return probs_TE, chosen_TE

    def _count(self, logits_TE: Tensor, routed_T: Tensor | None) -> Count:
        """Return the number of routed tokens of the ranks that share the sequences."""
        if routed_T is None:
            return len(logits_TE) * self.parts.size
        return self.parts.all_reduce(routed_T.sum(dtype=torch.float64).reshape(1))[0]

    def _choose(self, logits_TE: Tensor, routed_T: Tensor | None) -> tuple[Tensor, Tensor]:
        """Choose experts for the routed rows; the other rows have no expert."""
        logits_RE = logits_TE if routed_T is None else logits_TE[routed_T]
        probs_RE, chosen_RE = routing.choose(
            logits_RE, self.config, self.expert_bias, training=self.training
        )
        if routed_T is None:
            return probs_RE, chosen_RE
        chosen_TE = torch.zeros_like(logits_TE, dtype=torch.bool)
        chosen_TE[routed_T] = chosen_RE
        return torch.zeros_like(logits_TE).index_put((routed_T,), probs_RE), chosen_TE

    @uncompiled
    def _counts_load(self) -> bool:
        """Return whether this forward is the one of its micro-batch whose load counts.

        A forward without gradients is an evaluation, or the first of two under torch's reentrant
        checkpoint, where the recomputation counts.
        """
        counted = self._gradients(torch.is_grad_enabled)
        return counted != inside_backward()

    def _attach_load_losses(
        self, probs_TE: Tensor, scores: tuple[Tensor, Tensor], scales: Counts, *, sequences: int
    ) -> Tensor:  # fmt: skip
        """Attach the losses for an uneven load."""
        config, count = self.config, self.config.count
        for weight, parts, reduce, which in (
            (config.aux_loss, 1, self.parts.all_reduce, 0),
            (config.sequence_aux_loss, sequences, self.parts.all_reduce, 0),
            (config.global_aux_loss, 1, self._mean_of_step, 1),
        ):
            if weight:
                scores_TE, chosen_E = (x.reshape(-1, parts * count) for x in scores)
                loss = routing.load_loss(scores_TE, reduce(chosen_E.sum(0)), config)
                probs_TE = self._attach(probs_TE, loss * weight / parts, scales, which)
        return probs_TE

    @uncompiled
    def _mean_of_step(self, load_E: Tensor) -> Tensor:
        """Return the mean load over all ranks and the micro-batches so far.

        A recomputation adds no load and returns its forward's mean, since a pipeline has run other
        forwards in between. The load of an evaluation, without gradients, isn't counted in forwards
        that make gradients. Under torch's reentrant checkpoint, no forward makes them.
        """

        def mean() -> Tensor:
            needs_gradients = torch.is_grad_enabled()
            self._loads.append((self.tokens.all_reduce(load_E).float(), needs_gradients))
            loads = [load for load, trains in self._loads if trains or not needs_gradients]
            return torch.stack(loads).mean(0)

        return self._means(mean)

    @uncompiled
    def _scales(self, tokens: Count, routed_T: Tensor | None) -> Counts:
        """Return the factors of auxiliary losses in backward.

        Args:
            tokens: routed tokens of the ranks that share the sequences.
            routed_T: whether each of this rank's rows is routed; None if all are.

        Returns:
            the factor of the losses over a micro-batch, and that of the loss over the whole batch,
            of which each data rank has a part.
        """
        replicas = self.tokens.size // self.parts.size
        if not isinstance(self.scale, str):
            # Context ranks' parts are averaged, as replicas' gradients; tensor ranks' are summed.
            return self.scale * self._contexts, self.scale * self._contexts * replicas
        if self.counted is not None:
            counted = self.counted
            return self._counts(lambda: counted)
        if routed_T is None:
            return tokens, tokens * replicas
        local = routed_T.sum(dtype=torch.float64).reshape(1)
        return tokens, self.tokens.all_reduce(local)[0]

    def _attach(self, x: Tensor, loss: Tensor, scales: Counts, which: int) -> Tensor:
        on_backward = None
        if isinstance(self.scale, str) and self.counted is None:
            on_backward = partial(self.weights.append, scales[0])
        return attach_loss(x, loss, scales[which], on_backward)

    @torch.no_grad()
    def end_step(self) -> Tensor | None:
        """Move the bias towards experts with less than the mean load, and reset the load.

        Every rank must call it after a step's last backward (Wang et al., "Auxiliary-Loss-Free Load
        Balancing", algorithm 1; `get_updated_expert_bias` in Megatron's moe_utils.py).

        Returns:
            the change of the bias [E], None without a bias. Under FSDP, which holds the bias, the
            caller must add the change there (`StepGradients` does).
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
        """Reset the loads of the current step, also of one that is abandoned."""
        self._load_E, self._loads = 0, []
        self.weights.clear()
        self._counts.clear()
        self._means.clear()
        self._gradients.clear()


def attach_loss(
    x: Tensor, loss: Tensor, scale: Count, on_backward: Callable[[], None] | None = None
) -> Tensor:  # fmt: skip
    """Return `x`; its backward also gives `loss` the gradient `scale` and calls `on_backward`."""

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        if on_backward is not None:
            on_backward()
        return grad, torch.as_tensor(scale, dtype=loss.dtype, device=loss.device)

    return apply_pair(lambda x, _: (x.view_as(x),), backward, x, loss)[0]
