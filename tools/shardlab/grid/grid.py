"""The process grid: a `Layout` of the ranks of a world, with this rank's axes of communication.

`Grid(world=world, tensor=2, pipeline=2)` puts the remaining ranks on the data axis and has
`grid.tensor`, `grid.pipeline` and `grid.data`, each an `Axis` that a layer takes as an argument.
Megatron keeps the same groups in module globals (core/parallel_state.py,
`initialize_model_parallel`), so a process can have one grid there. Here it can have several.
"""

from collections.abc import Mapping

import torch
from torch.distributed.device_mesh import DeviceMesh

from shardlab.comm import Axis, World
from shardlab.grid.layout import NAMES, TOKENS, Layout
from shardlab.grid.rules import check_world

ORDER = "tp-cp-ep-dp-pp"
DENSE = ("tensor", "context", "data", "pipeline")
# The axes of the experts, and their tokens in the experts' layout.
OF_EXPERTS = {"expert": "ep", "expert_tensor": "tp", "expert_data": "dp-cp"}


class Grid:
    """This rank's axes on a process grid; every rank builds it with the same arguments.

    Args:
        world: the world of the ranks.
        tensor: ranks along the tensor axis.
        pipeline: ranks along the pipeline axis, its stages.
        context: ranks that share each sequence. They hold the same parameters, so gradients are
            reduced over `replicas`.
        expert: ranks over which the experts are distributed. They are replicas of the dense layers
            (data and context ranks), or tensor ranks where `expert_tensor` is smaller.
        expert_tensor: ranks that share one expert; by default `tensor`.
        data: data-parallel replicas; by default the remaining ranks of the world.
        order: the axes from the fastest to the slowest (see `Layout`).
        links: axis name → link; by default the world's link. The name of a combined axis joins its
            parts, such as "tensor-data".

    Attributes:
        tensor, context, data, pipeline: the axes.
        replicas: the ranks that hold the same parameters: data × context; `data` if context is 1.
            Made at its first use.
        embedding: the first and the last stage of this rank's pipeline, which share tied
            embeddings; None on the stages between.
        expert, expert_tensor, expert_data: the axes of the experts; made at their first use.
        device: where this rank's tensors live.
        layout: the arithmetic of the dense layers' axes.
        experts: the arithmetic of the experts' axes.

    Raises:
        ValueError: the sizes don't multiply to the world's, or `links` has an unknown axis.

    """

    def __init__(
        self, *, world: World, tensor: int = 1, context: int = 1, expert: int = 1,
        expert_tensor: int | None = None, pipeline: int = 1, data: int | None = None,
        order: str = ORDER, links: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Make the groups; collective over the world."""
        sizes = {"tensor": tensor, "context": context, "pipeline": pipeline}
        data = check_world(world.size, data=data, **sizes)
        self.layout = Layout(tensor, context, 1, data, pipeline, order)
        self.experts = self.layout.for_experts(expert, expert_tensor)
        self._world, self.device = world, world.device
        self._links = dict(links or {})
        for name in self._links:
            if not {*name.split("-")} <= {*DENSE, *OF_EXPERTS, "embedding"}:
                names = ", ".join([*DENSE, *OF_EXPERTS])
                raise ValueError(f"links has {name!r}, which is no axis; {names} are")
        # All ranks make these groups in the same order; otherwise they would deadlock.
        self.tensor = self.axis("tensor")
        self.context = self.axis("context")
        self.data = self.axis("data")
        self.pipeline = self.axis("pipeline")
        first, last = self.pipeline.ranks[0], self.pipeline.ranks[-1]
        ends = [first] if first == last else [first, last]
        self.embedding = self._axis("embedding", ends) if world.rank in ends else None

    def axis(self, *names: str) -> Axis:
        """Return the axis over one or several named axes, such as "tensor", "pipeline".

        Its ranks follow the layout's order. The first call for a combination makes a process group,
        so every rank of the grid must make it at the same point of the program.

        Raises:
            ValueError: a name is unknown, or axes of dense layers and of experts are combined.

        """
        layout, tokens = self.layout, {name: TOKENS[name] for name in DENSE}
        if OF_EXPERTS.keys() & {*names}:
            layout, tokens = self.experts, OF_EXPERTS | {"pipeline": "pp"}
        for name in names:
            if name not in tokens:
                raise ValueError(
                    f"a grid has no axis {name!r} in {'-'.join(names)}; choose from "
                    f"{', '.join(DENSE)}, or of the experts from {', '.join(OF_EXPERTS)}, pipeline"
                )
        ranks = layout.group_of(self._world.rank, "-".join(tokens[name] for name in names))
        return self._axis("-".join(names), ranks)

    @property
    def replicas(self) -> Axis:
        """The ranks that hold the same parameters; gradients are averaged over them."""
        return self.data if self.context.size == 1 else self.axis("data", "context")

    @property
    def expert(self) -> Axis:
        """The ranks over which the experts are distributed."""
        return self.axis("expert")

    @property
    def expert_tensor(self) -> Axis:
        """The ranks that share each of this rank's experts."""
        return self.axis("expert_tensor")

    @property
    def expert_data(self) -> Axis:
        """The ranks that hold the same experts, or the same parts of them."""
        return self.axis("expert_data")

    def device_mesh(self) -> DeviceMesh:
        """Return the same layout for DTensor, FSDP2 and pipelining, over the same process groups.

        Its dimensions have the axes' names, from the slowest to the fastest; in the default order
        ("pipeline", "data", "context", "tensor").
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
