"""The settings of a model's experts, independent of the grid, and the checks of these settings.

The checks are Megatron's (`TransformerConfig.__post_init__`), and a few for cases in which Megatron
crashes later.
"""

from dataclasses import dataclass
from math import inf

from shardlab.grid.rules import check_divides, refuse

CHOICES = {
    "scores": ("softmax", "sigmoid"), "drop": ("probs", "position"),
    "dispatch": ("all-to-all", "all-gather"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExpertConfig:
    """Experts in place of each block's feed-forward pair.

    Attributes:
        count: E, the number of experts of one layer.
        top_k: the number of experts that see a token.
        ffn: the width of each expert; None for the width of the dense pair.
        shared: the width of a shared expert that sees every token; None for no shared expert.
        shared_gate: scale the shared expert's output by a gate of its own.
        scores: "softmax" or "sigmoid".
        pre_softmax: apply softmax to all experts' scores before the choice, not to the chosen ones.
        bias_rate: the step of a bias that is added for the choice only and evens the load (sigmoid
            only); None for no bias.
        groups, top_groups: choose among the experts of the `top_groups` best of `groups` groups.
        scaling: a factor of the chosen probabilities.
        sinkhorn: choose by a balanced assignment instead (in training).
        aux_loss, sequence_aux_loss, global_aux_loss: weights of the loss for an uneven load,
            computed over a micro-batch, over each sequence, over the whole batch.
        z_loss: the weight of the loss that keeps logits small.
        capacity: the most rows of one rank that an expert takes, as a multiple of an even share;
            further rows are dropped. None for no limit.
        drop: which rows are kept: those with the largest "probs", or the first by "position".
        pad: fill an expert's rows up to its capacity, so that every rank knows all counts.
        dispatch: "all-to-all" or "all-gather". All-gather and `pad` require that all ranks have
            equally many tokens, as on a grid; under all-gather, World.join(check=True) checks it.
            All-to-all without `pad` exchanges the counts first.
    """

    count: int
    top_k: int = 2
    ffn: int | None = None
    shared: int | None = None
    shared_gate: bool = False
    scores: str = "softmax"
    pre_softmax: bool = False
    bias_rate: float | None = None
    groups: int | None = None
    top_groups: int | None = None
    scaling: float | None = None
    sinkhorn: bool = False
    aux_loss: float = 0.0
    sequence_aux_loss: float = 0.0
    global_aux_loss: float = 0.0
    z_loss: float = 0.0
    capacity: float | None = None
    drop: str = "probs"
    pad: bool = False
    dispatch: str = "all-to-all"

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other or have no effect."""
        k, softmax = self.top_k, self.scores == "softmax"
        groups, top = (1, 1) if self.groups is None else (self.groups, self.top_groups or 0)
        check_divides("groups", max(1, groups), self.count, "experts")
        size = self.count // max(1, groups)
        refuse(
            (not 1 <= k <= self.count, f"top_k = {k} of {self.count} experts: choose at least one "
             f"expert, and top_k from 1 to {max(1, self.count)}"),
            (k == 1 and softmax and not (self.pre_softmax or self.sinkhorn), "top_k = 1 with a "
             "softmax over the chosen one: its weight is 1 whatever its score, and the loss "
             "teaches the router nothing; choose pre_softmax = True or scores = 'sigmoid'"),
            *((getattr(self, name) not in options, f"{name} = {getattr(self, name)!r}: choose "
               f"{options[0]!r} or {options[1]!r}") for name, options in CHOICES.items()),
            (self.capacity is not None and not 0 < self.capacity < inf, "capacity = "
             f"{self.capacity}: choose a finite factor above 0 (1 is an even share), or None"),
            (self.pad and self.capacity is None, "pad = True fills up to a capacity: give one"),
            (self.bias_rate is not None and softmax, "bias_rate goes with scores = 'sigmoid': a "
             "bias would change what softmax scores mean"),
            (self.sinkhorn and any((self.balanced, self.capacity, self.groups, self.bias_rate,
             self.scaling, self.pre_softmax, not softmax)), "sinkhorn = True chooses and evens the "
             "load by itself: leave auxiliary losses, capacity, groups, a bias, scaling and other "
             "scores out"),
            (self.shared_gate and not self.shared, "shared_gate = True gates nothing: give shared"),
            ((self.groups is None) != (self.top_groups is None) or groups < 1, "groups and "
             "top_groups go together: give both, from 1 up, or neither"),
            (not 1 <= top <= min(groups, k) or top * size < k, f"top_groups = {top} of {groups} "
             f"groups of {size} experts can't give {k} experts a token; choose at most {k} groups "
             f"that hold at least {k} together"),
        )  # fmt: skip

    @property
    def balanced(self) -> bool:
        """Whether there is an auxiliary loss for an uneven load."""
        return any((self.aux_loss, self.sequence_aux_loss, self.global_aux_loss))
