"""The process grid: a `Layout` on a world of ranks, with this rank's axes of communication.

`Grid(world=world, tensor=2, pipeline=2)` puts the ranks that are left on the data axis and gives
`grid.tensor`, `grid.pipeline`, `grid.data`: each an `Axis` that a layer takes as an argument.
Megatron keeps the same groups in module globals (core/parallel_state.py,
`initialize_model_parallel`), so that one process can have one grid; here it can have several.
"""

from collections.abc import Mapping

import torch
from torch.distributed.device_mesh import DeviceMesh

from shardlab.comm import Axis, World
from shardlab.layout import NAMES, TOKENS, Layout
from shardlab.rules import check_world

ORDER = "tp-cp-ep-dp-pp"


class Grid:
    """This rank's axes on a process grid; every rank builds it with the same arguments.

    Experts have a layout of their own, as in Megatron: ranks that are data or context replicas of
    attention hold different experts, so tensor · expert · pipeline · expert_data is the world too.

    Args:
        world: the ranks.
        tensor, context, expert, pipeline: ranks along each axis.
        data: data-parallel replicas of the dense layers; by default what is left of the world.
        order: which axis runs fastest (see `Layout`).
        links: axis name → link ("torch" or "shared-memory"); a combined axis is named for its
            parts, such as "data-context".

    Attributes:
        tensor, context, data, pipeline: the axes of the dense layers.
        expert, expert_data: the axes of the experts.
        embedding: the first and the last stage of this rank's pipeline, which share tied
            embeddings; None on a stage between.
        layout, expert_layout: the arithmetic behind them.

    Raises:
        ValueError: sizes that don't multiply to the world, an unknown axis in `links`, or an order
            under which dense layers and experts would stand in different pipelines.

    """

    def __init__(
        self,
        *,
        world: World,
        tensor: int = 1,
        context: int = 1,
        expert: int = 1,
        pipeline: int = 1,
        data: int | None = None,
        order: str = ORDER,
        links: Mapping[str, str] | None = None,
    ) -> None:
        """Make the groups; collective over the world."""
        given = {} if data is None else {"data": data}
        data = check_world(world.size, tensor=tensor, context=context, pipeline=pipeline, **given)
        self.layout = Layout(tensor, context, 1, data, pipeline, order)
        self.expert_layout = self.layout.for_experts(expert)
        self._world = world
        self._links = dict(links or {})
        for name in self._links:
            if not {*name.split("-")} <= {*TOKENS, "expert_data", "embedding"}:
                raise ValueError(f"links has {name!r}, which is no axis; {', '.join(TOKENS)} are")
        # Ranks make these groups in one order, so that none waits for a group that another makes
        # later.
        self.tensor = self.axis("tensor")
        self.context = self.axis("context")
        self.data = self.axis("data")
        self.pipeline = self.axis("pipeline")
        self.expert = self._over("expert", self.expert_layout, "ep")
        self.expert_data = self._over("expert_data", self.expert_layout, "dp-cp")
        first, last = self.pipeline.ranks[0], self.pipeline.ranks[-1]
        ends = [first] if first == last else [first, last]
        self.embedding = self._axis("embedding", ends) if world.rank in ends else None

    def axis(self, *names: str) -> Axis:
        """Return the axis over several axes of the dense layers at once, such as "data", "context".

        Its ranks follow the layout's order. The first call for a combination makes a group, so
        every rank of the grid makes it at the same point of the program.

        Raises:
            ValueError: an unknown name, or "expert", which the dense layers don't have.

        """
        for name in names:
            if name not in TOKENS or name == "expert":
                raise ValueError(
                    f"the dense layers have no axis {name!r}; "
                    "choose from tensor, context, data, pipeline"
                )
        return self._over("-".join(names), self.layout, "-".join(TOKENS[name] for name in names))

    def device_mesh(self, *, experts: bool = False) -> DeviceMesh:
        """Return the same layout for DTensor, FSDP2 and pipelining, over the same process groups.

        Its dimensions are named like the axes, from the slowest to the fastest: with the default
        order ("pipeline", "data", "context", "tensor"), or with "expert" in place of "context".

        Args:
            experts: the experts' layout in place of the dense layers'.

        """
        layout = self.expert_layout if experts else self.layout
        absent = "context" if experts else "expert"
        names = [name for token in layout.order.split("-") if (name := NAMES[token]) != absent]
        names.reverse()
        mesh = torch.arange(layout.world_size).view([getattr(layout, name) for name in names])
        axes = [self._over(_named(name, experts), layout, TOKENS[name]) for name in names]
        return DeviceMesh.from_group(
            [axis.group for axis in axes],
            self._world.device.type,
            mesh=mesh,
            mesh_dim_names=tuple(names),
        )

    def __repr__(self) -> str:
        """Show the layouts."""
        return f"Grid({self.layout}, expert_layout={self.expert_layout})"

    def _over(self, name: str, layout: Layout, tokens: str) -> Axis:
        return self._axis(name, layout.group_of(self._world.rank, tokens))

    def _axis(self, name: str, ranks: list[int]) -> Axis:
        return self._world.axis(name, ranks, link=self._links.get(name, "torch"))


def _named(name: str, experts: bool) -> str:
    return "expert_data" if experts and name == "data" else name
