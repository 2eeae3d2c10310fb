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
from shardlab.grid.layout import NAMES, TOKENS, Layout
from shardlab.grid.rules import check_world

ORDER = "tp-cp-ep-dp-pp"
DENSE = ("tensor", "context", "data", "pipeline")
# The axes that experts have instead, and what their own layout calls them.
OF_EXPERTS = {"expert": "ep", "expert_tensor": "tp", "expert_data": "dp-cp"}


class Grid:
    """This rank's axes on a process grid; every rank builds it with the same arguments.

    Args:
        world: the ranks.
        tensor, pipeline: ranks along each axis.
        context: ranks that share each sequence; they hold the same parameters as each other, so
            gradients are reduced over `replicas`.
        expert: into how many pieces the experts are dealt out; their ranks are replicas of the
            dense layers, context ranks too, or tensor ranks, which have no other expert to hold.
        expert_tensor: ranks that share one expert; `tensor` unless given.
        data: data-parallel replicas; by default what is left of the world.
        order: which axis runs fastest (see `Layout`).
        links: axis name → link, the world's own unless given; a combined axis is named for its
            parts, such as "tensor-data".

    Attributes:
        tensor, context, data, pipeline: the axes.
        replicas: the ranks that hold the same parameters: data × context; `data` where sequences
            are whole. Made when first asked for.
        embedding: the first and the last stage of this rank's pipeline, which share tied
            embeddings; None on a stage between.
        expert, expert_tensor, expert_data: the axes of the experts; made when first asked for.
        layout, experts: the arithmetic behind them, of dense layers and of experts.

    Raises:
        ValueError: sizes that don't multiply to the world, or an unknown axis in `links`.

    """

    def __init__(
        self, *, world: World, tensor: int = 1, context: int = 1, expert: int = 1,
        expert_tensor: int | None = None, pipeline: int = 1, data: int | None = None,
        order: str = ORDER, links: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Make the groups; collective over the world."""
        others = {"tensor": tensor, "context": context, "pipeline": pipeline}
        data = check_world(world.size, data=data, **others)
        self.layout = Layout(tensor, context, 1, data, pipeline, order)
        self.experts = self.layout.for_experts(expert, expert_tensor)
        self._world = world
        self._links = dict(links or {})
        for name in self._links:
            if not {*name.split("-")} <= {*DENSE, *OF_EXPERTS, "embedding"}:
                names = ", ".join([*DENSE, *OF_EXPERTS])
                raise ValueError(f"links has {name!r}, which is no axis; {names} are")
        # Ranks make these groups in one order, so that none waits for a group that another makes
        # later.
        self.tensor = self.axis("tensor")
        self.context = self.axis("context")
        self.data = self.axis("data")
        self.pipeline = self.axis("pipeline")
        first, last = self.pipeline.ranks[0], self.pipeline.ranks[-1]
        ends = [first] if first == last else [first, last]
        self.embedding = self._axis("embedding", ends) if world.rank in ends else None

    def axis(self, *names: str) -> Axis:
        """Return the axis over several axes at once, such as "tensor", "pipeline".

        Its ranks follow the layout's order. The first call for a combination makes a group, so
        every rank of the grid makes it at the same point of the program.

        Raises:
            ValueError: an unknown name, or one of the dense layers beside one of the experts.

        """
        layout, known = self.layout, {name: TOKENS[name] for name in DENSE}
        if OF_EXPERTS.keys() & {*names}:
            layout, known = self.experts, OF_EXPERTS | {"pipeline": "pp"}
        for name in names:
            if name not in known:
                raise ValueError(
                    f"a grid has no axis {name!r} in {'-'.join(names)}; choose from "
                    f"{', '.join(DENSE)}, or of the experts from {', '.join(OF_EXPERTS)}, pipeline"
                )
        ranks = layout.group_of(self._world.rank, "-".join(known[name] for name in names))
        return self._axis("-".join(names), ranks)

    @property
    def replicas(self) -> Axis:
        """The ranks that hold the same parameters, and over which gradients are a mean."""
        return self.data if self.context.size == 1 else self.axis("data", "context")

    @property
    def expert(self) -> Axis:
        """The ranks among which the experts are dealt out."""
        return self.axis("expert")

    @property
    def expert_tensor(self) -> Axis:
        """The ranks that share this rank's experts."""
        return self.axis("expert_tensor")

    @property
    def expert_data(self) -> Axis:
        """The ranks that hold the same experts, or the same parts of them."""
        return self.axis("expert_data")

    def device_mesh(self) -> DeviceMesh:
        """Return the same layout for DTensor, FSDP2 and pipelining, over the same process groups.

        Its dimensions are named like the axes, from the slowest to the fastest: with the default
        order ("pipeline", "data", "context", "tensor").
        """
        layout = self.layout
        names = [name for token in layout.order.split("-") if (name := NAMES[token]) != "expert"]
        names.reverse()
        mesh = torch.arange(layout.world_size).view([getattr(layout, name) for name in names])
        return DeviceMesh.from_group(
            [self.axis(name).group for name in names],
            self._world.device.type,
            mesh=mesh,
            mesh_dim_names=tuple(names),
        )

    def _axis(self, name: str, ranks: list[int]) -> Axis:
        return self._world.axis(name, ranks, link=self._links.get(name))
