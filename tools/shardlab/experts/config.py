"""What the experts of a model are, whatever it runs on: one dataclass of settings, and its rules.

The rules are Megatron's (`TransformerConfig.__post_init__`), and a few that it leaves to a crash.
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
        count: E, of one layer.
        top_k: how many experts see a token.
        ffn: width of each expert; None for the dense pair's.
        shared: width of an expert that sees every token; None for none.
        shared_gate: scale the shared expert's output by a gate of its own.
        scores: "softmax" or "sigmoid".
        pre_softmax: softmax over all experts before the choice, not over the chosen ones.
        bias_rate: step of a bias that steers the choice alone, towards an even load (sigmoid only);
            None for no bias.
        groups, top_groups: choose among the experts of the `top_groups` best of `groups` groups.
        scaling: a factor on the chosen probabilities.
        sinkhorn: choose by a balanced assignment instead (in training).
        aux_loss, sequence_aux_loss, global_aux_loss: weights of the loss that pays for an uneven
            load, counted over a micro-batch, over each sequence, over the whole batch.
        z_loss: weight of the loss that keeps logits small.
        capacity: rows that an expert takes of one rank, as a multiple of an even share; the others
            are dropped. None: none are.
        drop: what is kept, the "probs" that are largest or the first "position"s.
        pad: fill an expert's rows up to its capacity, so that every rank knows all numbers.
        dispatch: "all-to-all" or "all-gather". The latter, and `pad`, take it that ranks have
            equally many tokens, as those of a grid have; under all-gather World.join(check=True)
            refuses others. All-to-all without `pad` asks first.
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
        """Refuse what has no meaning."""
        k, softmax = self.top_k, self.scores == "softmax"
        groups, best = (1, 1) if self.groups is None else (self.groups, self.top_groups or 0)
        check_divides("groups", max(1, groups), self.count, "experts")
        size = self.count // max(1, groups)
        refuse(
            (not 1 <= k <= self.count, f"top_k = {k} of {self.count} experts: choose at least one "
             f"expert, and top_k from 1 to {max(1, self.count)}"),
            (k == 1 and softmax and not (self.pre_softmax or self.sinkhorn), "top_k = 1 with a "
             "softmax over the chosen one: its weight is 1 whatever its score, and the loss "
             "teaches the router nothing; choose pre_softmax = True or scores = 'sigmoid'"),
            *((getattr(self, name) not in known, f"{name} = {getattr(self, name)!r}: choose "
               f"{known[0]!r} or {known[1]!r}") for name, known in CHOICES.items()),
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
            (not 1 <= best <= min(groups, k) or best * size < k, f"top_groups = {best} of {groups} "
             f"groups of {size} experts can't give {k} experts a token; choose at most {k} groups "
             f"that hold at least {k} together"),
        )  # fmt: skip

    @property
    def balanced(self) -> bool:
        """Whether an auxiliary loss pays for an uneven load."""
        return any((self.aux_loss, self.sequence_aux_loss, self.global_aux_loss))
