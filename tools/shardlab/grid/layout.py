"""The position of each rank on the axes of parallelism, as arithmetic without processes.

A rank is a number in mixed radix. `order` names its digits from the fastest to the slowest. In
"tp-cp-ep-dp-pp", neighbouring ranks share a tensor group, and the ranks of a pipeline stage are
contiguous. A group consists of the ranks that differ in some digits and agree in the others.

Megatron does the same in `RankGenerator` (core/parallel_state.py); tests compare the two.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property

from shardlab.grid.rules import check_world

# Megatron's short names, in the order in which it appends those that `order` lacks.
TOKENS = {"tensor": "tp", "pipeline": "pp", "data": "dp", "expert": "ep", "context": "cp"}
NAMES = {token: name for name, token in TOKENS.items()}
CHOOSE = "choose from " + ", ".join(NAMES)


@dataclass(frozen=True)
class Layout:
    """The sizes of the axes and the order in which ranks are numbered along them.

    As in Megatron, two layouts describe a model with experts: one for attention and other dense
    layers (expert = 1), and one for the experts (context = 1).

    Args:
        tensor, context, expert, data, pipeline: ranks along each axis.
        order: the tokens tp, cp, ep, dp, pp from the fastest to the slowest, joined by '-'. The
            token of an axis of one rank may be left out.

    Raises:
        ValueError: a size is below 1, context and expert are both above 1, or `order` has an
            unknown or repeated token or lacks an axis of several ranks.

    """

    tensor: int = 1
    context: int = 1
    expert: int = 1
    data: int = 1
    pipeline: int = 1
    order: str = "tp-cp-ep-dp-pp"

    def __post_init__(self) -> None:
        """Refuse invalid sizes; complete `order`, so that it names every axis."""
        for field in fields(self):
            size = getattr(self, field.name)
            if field.name != "order" and (not isinstance(size, int) or size < 1):
                raise ValueError(f"{field.name} axis of size {size}; choose a whole number from 1")
        if self.context > 1 and self.expert > 1:
            raise ValueError(
                f"context {self.context} and expert {self.expert} in one layout; experts see whole "
                "sequences, so give them a layout of their own with context = 1"
            )
        object.__setattr__(
            self, "order", "-".join(self._complete_order(self.order.lower().split("-")))
        )

    def _complete_order(self, tokens: list[str]) -> list[str]:
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
        """Return the experts' layout on the ranks of this dense one; this layout if they agree.

        The experts are cut into `expert` pieces, which are held by replicas of the dense layers or
        by their tensor ranks. Each piece has world / (tensor · expert · pipeline) replicas.
        Megatron refuses the same combinations in `initialize_model_parallel`.

        Args:
            expert: the number of pieces.
            tensor: ranks that share one expert; by default the dense layers' tensor ranks.

        Raises:
            ValueError: the sizes don't divide the world, or the order would put a rank's experts
                into another pipeline, or into other replicas, than its dense layers.

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
        """The (size, stride) of each token, fastest first."""
        digits, stride = {}, 1
        for token in self.order.split("-"):
            size = getattr(self, NAMES[token])
            digits[token] = (size, stride)
            stride *= size
        return digits

    def groups(self, tokens: str) -> list[list[int]]:
        """Return all groups over the axes in `tokens`, such as "tp" or "tp-dp".

        Ranks inside a group, and the groups, follow `order`, not the order of `tokens`.

        Raises:
            ValueError: a token is unknown.

        """
        all_groups = (self.group_of(rank, tokens) for rank in range(self.world_size))
        return [group for rank, group in enumerate(all_groups) if group[0] == rank]

    def group_of(self, rank: int, tokens: str) -> list[int]:
        """Return the group over `tokens` that contains `rank` (see `groups`)."""
        self._check(rank)
        wanted = self._split_tokens(tokens)
        running = [digit for token, digit in self._digits.items() if token in wanted]
        start = rank - sum(rank // stride % size * stride for size, stride in running)
        return [start + offset for offset in _sums(running)]

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return `rank`'s index on each axis: {"tensor": 1, "data": 0, …}, fastest axis first."""
        self._check(rank)
        return {
            NAMES[token]: rank // stride % size for token, (size, stride) in self._digits.items()
        }

    def _split_tokens(self, tokens: str) -> list[str]:
        names = tokens.split("-")
        for token in names:
            if token not in self._digits:
                raise ValueError(f"no axis {token!r} in {tokens!r}; {CHOOSE}, joined by '-'")
        return names

    def _check(self, rank: int) -> None:
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank {rank} is not one of the {self.world_size} ranks 0 … here")


def _sums(digits: Iterable[tuple[int, int]]) -> list[int]:
    """Return all sums of i·stride with i < size; the first digit varies fastest."""
    sums = [0]
    for size, stride in digits:
        sums = [index * stride + inner for index in range(size) for inner in sums]
    return sums
