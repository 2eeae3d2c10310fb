"""Which rank stands where: the enumeration of ranks along the axes of parallelism, as arithmetic.

A rank is a number in mixed radix. `order` names its digits from the fastest to the slowest, so in
"tp-cp-ep-dp-pp" neighbouring ranks share a tensor group and a pipeline stage is a solid block.
A group is what remains when some digits run and the others stand still.

Megatron does the same in `RankGenerator` (core/parallel_state.py); tests hold the two equal.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property

from shardlab.grid.rules import check_world

# Megatron's short names in the order in which it appends the ones that `order` leaves out.
TOKENS = {"tensor": "tp", "pipeline": "pp", "data": "dp", "expert": "ep", "context": "cp"}
NAMES = {token: name for name, token in TOKENS.items()}
CHOOSE = "choose from " + ", ".join(NAMES)


@dataclass(frozen=True)
class Layout:
    """The sizes of the axes and the order in which ranks run through them; needs no process.

    Two layouts describe one model with experts, as in Megatron: a dense one (expert = 1) for
    attention and plain layers, an expert one (context = 1) for the experts.

    Args:
        tensor, context, expert, data, pipeline: ranks along each axis.
        order: tokens tp, cp, ep, dp, pp from the fastest to the slowest, joined by '-'. A token may
            be left out where its axis has one rank.

    Raises:
        ValueError: a size below 1, context and expert both above 1, or an `order` that is unknown,
            repeated, or lacks an axis of several ranks.

    """

    tensor: int = 1
    context: int = 1
    expert: int = 1
    data: int = 1
    pipeline: int = 1
    order: str = "tp-cp-ep-dp-pp"

    def __post_init__(self) -> None:
        """Refuse what has no meaning; make `order` name every axis."""
        for field in fields(self):
            size = getattr(self, field.name)
            if field.name != "order" and (not isinstance(size, int) or size < 1):
                raise ValueError(f"{field.name} axis of size {size}; choose a whole number from 1")
        if self.context > 1 and self.expert > 1:
            raise ValueError(
                f"context {self.context} and expert {self.expert} in one layout; experts see whole "
                "sequences, so give them a layout of their own with context = 1"
            )
        object.__setattr__(self, "order", "-".join(self._completed(self.order.lower().split("-"))))

    def _completed(self, tokens: list[str]) -> list[str]:
        for token in tokens:
            if token not in NAMES:
                raise ValueError(f"order {self.order!r} has {token!r}; {CHOOSE}")
            if tokens.count(token) > 1:
                raise ValueError(f"order {self.order!r} has {token!r} twice; name each axis once")
        missing = [token for token in NAMES if token not in tokens]
        for token in missing:
            if (size := getattr(self, NAMES[token])) > 1:
                raise ValueError(
                    f"order {self.order!r} does not say where {token!r} stands, and the "
                    f"{NAMES[token]} axis has {size} ranks; add {token!r}"
                )
        return tokens + missing

    def for_experts(self, expert: int, tensor: int | None = None) -> "Layout":
        """Return the layout of the experts on the ranks of this dense one; itself if they agree.

        The ranks that are replicas of the dense layers, or their tensor ranks, hold `expert` pieces
        of the experts, each in world / (tensor · expert · pipeline) replicas. Megatron refuses the
        same mixtures in `initialize_model_parallel`.

        Args:
            expert: pieces of the experts.
            tensor: ranks that share one expert; those of the dense layers unless given.

        Raises:
            ValueError: the sizes don't divide the world, or the order would put a rank's experts
                in another pipeline, or in other replicas, than its dense layers.

        """
        tensor = self.tensor if tensor is None else tensor
        if (tensor, expert) == (self.tensor, 1):
            return self
        data = check_world(self.world_size, tensor=tensor, expert=expert, pipeline=self.pipeline)
        layout = Layout(tensor, 1, expert, data, self.pipeline, self.order)
        slowest = self._digits["pp"][1] * self.pipeline == self.world_size
        mixed = self.pipeline > 1 and not slowest and data != self.data
        if mixed or layout.groups("pp") != self.groups("pp"):
            raise ValueError(
                f"order {self.order!r} has an axis slower than 'pp', and the experts' data axis "
                f"would have {data} ranks where the dense layers' has {self.data}; put 'pp' last"
            )
        return layout

    @property
    def world_size(self) -> int:
        """The number of ranks: the product of the sizes."""
        return math.prod(size for size, _ in self._digits.values())

    @cached_property
    def _digits(self) -> dict[str, tuple[int, int]]:
        """Each token's (size, stride), fastest first."""
        digits, stride = {}, 1
        for token in self.order.split("-"):
            size = getattr(self, NAMES[token])
            digits[token] = (size, stride)
            stride *= size
        return digits

    def groups(self, tokens: str) -> list[list[int]]:
        """Return every group over the axes in `tokens`, such as "tp" or "tp-dp".

        Inside a group, and from group to group, ranks follow `order`, not the order of `tokens`.

        Raises:
            ValueError: an unknown token.

        """
        found = (self.group_of(rank, tokens) for rank in range(self.world_size))
        return [group for rank, group in enumerate(found) if group[0] == rank]

    def group_of(self, rank: int, tokens: str) -> list[int]:
        """Return the one group over `tokens` that `rank` is in (see `groups`)."""
        self._check(rank)
        wanted = self._known(tokens)
        running = [digit for token, digit in self._digits.items() if token in wanted]
        start = rank - sum(rank // stride % size * stride for size, stride in running)
        return [start + offset for offset in _sums(running)]

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return `rank`'s place on each axis: {"tensor": 1, "data": 0, …}, fastest axis first."""
        self._check(rank)
        return {
            NAMES[token]: rank // stride % size for token, (size, stride) in self._digits.items()
        }

    def _known(self, tokens: str) -> list[str]:
        found = tokens.split("-")
        for token in found:
            if token not in self._digits:
                raise ValueError(f"no axis {token!r} in {tokens!r}; {CHOOSE}, joined by '-'")
        return found

    def _check(self, rank: int) -> None:
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank {rank} is not one of the {self.world_size} ranks 0 … here")


def _sums(digits: Iterable[tuple[int, int]]) -> list[int]:
    """Return every sum of i·stride with i < size, the first digit running fastest."""
    sums = [0]
    for size, stride in digits:
        sums = [index * stride + inner for index in range(size) for inner in sums]
    return sums
