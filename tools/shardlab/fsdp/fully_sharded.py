"""A model whose parameters, gradients and optimizer state are cut over the ranks of an axis.

    model = GPT(…)                                        # the same weights on every rank
    model = FSDP(model, grid.data, units=model.blocks)    # each block a unit, the rest the root's
    optimizer = AdamW(model.parameters())                 # one flat shard a unit
    loss = model(tokens)…; loss.backward(); optimizer.step()

Every rank computes on its own part of the batch with full parameters, that exist one unit at a
time; what persists is 1/n of everything. `life_cycle.py` has the states, `runtime.py` the moments.

What the flat shards cost: an optimizer sees a unit's parameters as one vector. All that works
element by element (SGD, Adam, AdamW, RMSprop, Adagrad …) is exact and fast, one tensor instead of
dozens; what looks at a parameter's shape or norm (LAMB, Adafactor, Muon) can't work, nor can groups
that part a unit's parameters. `local_parameters` shows where each parameter lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.data_parallel.gradient_norm import clip, gradient_norm
from shardlab.fsdp.flat.parameter import FlatParameter
from shardlab.fsdp.mixed_precision import MixedPrecision
from shardlab.fsdp.policies import BackwardPrefetch, ShardingStrategy
from shardlab.fsdp.runtime import Runtime
from shardlab.fsdp.unit import Unit
from shardlab.fsdp.wrap import assign, build
from shardlab.layers.dropout import number_replicas


class FSDP(nn.Module):
    """Wraps a model; its forward is the model's.

    Every rank runs the same units in the same order; ranks compare their orders, and raise if they
    differ. Which of the units or parameters a rank's loss depends on may differ: a rank that uses
    one less counts it as zero.

    The norm of the whole model's gradients is `clip_grad_norm_` here. torch's functions that look
    at all gradients see this rank's shards alone: `torch.nn.utils.clip_grad_norm_` clips by another
    norm on each rank, and a GradScaler skips the step on some ranks only.

    Args:
        module: the model, with the same weights on every rank and already on its device; or one of
            ours on meta, `GPT(device="meta")`, of which each rank draws its own shards alone.
        axis: along which parameters are cut (under NO_SHARD: along which they repeat).
        units: modules to gather and release as one each, usually the transformer blocks.
        strategy: what is sharded, and when.
        replicate: the second axis of a hybrid strategy.
        mixed_precision: dtypes of the working copies.
        backward_prefetch, forward_prefetch: what is fetched ahead of its use.
        device: where a model on meta is to be.

    Attributes:
        units: what it was cut into, the root first.
        runtime: what drives them.
        tied: the flat parameter of a weight that another stage of a pipeline holds too, which
            `module.tied_weight` names; None where there is none.

    Raises:
        ValueError: settings that don't fit together, units that are not in the model, a parameter
            tied across units.
    """

    def __init__(
        self, module: nn.Module, axis: Axis, *, units: Iterable[nn.Module] = (),
        strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD, replicate: Axis | None = None,
        mixed_precision: MixedPrecision | None = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        forward_prefetch: bool = False, device: torch.device | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if any(isinstance(inner, FSDP) for inner in module.modules()):
            raise ValueError("the model holds an FSDP already; wrap it once, and name its units")
        _refuse_nowhere(module, device)
        self.shard_axis, self.replicate_axis = strategy.axes(axis, replicate)
        self.precision = mixed_precision or MixedPrecision()
        axes = (self.shard_axis, self.replicate_axis)
        tied = getattr(module, "tied_weight", None)
        tied_name = next((n for n, p in module.named_parameters() if p is tied), None)
        self.units: tuple[Unit, ...] = tuple(
            build(name, m, slots, axes=axes, precision=self.precision, device=device, tied=tied)
            for name, (m, slots) in assign(module, units).items()
        )
        self.module = module
        holds_tied = (flat for flat in self.flats if tied_name in flat.layout.names)
        self.tied: FlatParameter | None = next(holds_tied, None)
        shard, replica = axes
        number_replicas(module, replica.rank * shard.size + shard.rank)
        self.runtime = Runtime(
            self.units, axes, strategy.reshards_after_forward, backward_prefetch, forward_prefetch
        )
        for unit in self.units[1:]:
            before, after = self.runtime.before_forward, self.runtime.after_forward
            unit.module.register_forward_pre_hook(
                partial(before, unit), prepend=True, with_kwargs=True
            )
            unit.module.register_forward_hook(partial(after, unit))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model with the root unit around it."""
        root, module = self.units[0], self.module
        args, kwargs = self.precision.cast(args), self.precision.cast(kwargs)
        self.runtime.before_forward(root, module, args, kwargs)
        outputs = module(*args, **kwargs)
        self.runtime.after_forward(root, module, args, outputs)
        return outputs

    @property
    def flats(self) -> list[FlatParameter]:
        """Every flat parameter, unit by unit."""
        return [flat for unit in self.units for flat in unit.flats]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In a backward inside, keep whole gradients for the next one to add to; reduce nothing.

        Saves the reduction, costs the memory of the whole gradient on every rank. The last
        micro-batch runs outside and reduces the sum.
        """
        before, self.runtime.sync = self.runtime.sync, False
        try:
            yield
        finally:
            self.runtime.sync = before

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, those too that `no_sync` holds and no optimizer knows."""
        super().zero_grad(set_to_none)
        for gradient in (gradient for unit in self.units for gradient in unit.gradients):
            gradient.drop()

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Hold every unit's full parameters in the modules, to look at or to generate with.

        Memory is the whole model's. In the computing dtype, under mixed precision. What is written
        to them inside is lost.
        """
        gathers = self.runtime.gathers
        for unit in self.units:
            gathers.fill(unit)
        gathers.pinned = True
        try:
            yield
        finally:
            gathers.pinned = False
            gathers.release_all()

    def local_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield (name, piece) for each parameter of which a piece lies on this rank.

        A piece is a view [elements] into the shard, its `.grad` one into the shard's; it bears the
        marks of the whole parameter (how it is cut over the tensor axis, say).
        """
        for flat in self.flats:
            for number, start, stop, _ in flat.layout.pieces(flat.axis.rank):
                piece = nn.Parameter(flat.shard_f.detach()[start:stop], flat.shard_f.requires_grad)
                piece.__dict__.update(flat.leaves[number].__dict__)
                if flat.shard_f.grad is not None:
                    piece.grad = flat.shard_f.grad[start:stop]
                yield flat.layout.names[number], piece

    def clip_grad_norm_(
        self, max_norm: float, *, axis: Axis | None = None, tensor: Axis | None = None
    ) -> Tensor:
        """Scale the gradients to a 2-norm of at most `max_norm`; return the norm they had (fp64).

        The norm is that of the whole model, each parameter counted once: pieces differ along the
        axis that shards, replicas of HYBRID_SHARD and NO_SHARD are equal and not added.

        Args:
            max_norm: of all parameters' gradients together.
            axis: whose ranks hold the whole model between them; by default the one that shards.
                With tensor parallelism around: `grid.axis("tensor", "data")`.
            tensor: the tensor axis, to count what its ranks hold alike only once.

        Raises:
            ValueError: `axis` goes over replicas, whose gradients would count several times.
        """
        replicas = {*self.replicate_axis.ranks} & {*(axis or self.shard_axis).ranks}
        if self.replicate_axis.size > 1 and len(replicas) > 1:
            raise ValueError(
                f"ranks {sorted(replicas)} of the {(axis or self.shard_axis).name} axis hold the "
                "same gradients, each of which would count several times in the norm: give an axis "
                "that goes over the ranks of one replica"
            )
        self.runtime.order.compare()
        pieces = [piece for _, piece in self.local_parameters()]
        norm = gradient_norm(pieces, axis or self.shard_axis, tensor=tensor or Axis.alone("tensor"))
        clip([flat.shard_f for flat in self.flats], norm, max_norm)
        return norm

    def __deepcopy__(self, memo: Any) -> NoReturn:
        raise RuntimeError(
            "an FSDP can't be copied: its hooks would go on serving the model that it was copied "
            "from. For an average of the weights copy the module before it is wrapped and wrap the "
            "copy alike, or average the shards, model.parameters()"
        )

    def _apply(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(
            "move or cast the model before it is wrapped in FSDP: its parameters are views of "
            "buffers that .to(), .cuda() or .half() would leave behind"
        )


def _refuse_nowhere(module: nn.Module, device: torch.device | None) -> None:
    """Refuse a model on meta without a device to be on, and what can't be drawn there."""
    if device is None and any(parameter.is_meta for parameter in module.parameters()):
        raise ValueError("the model is on meta: say where its shards are to be, FSDP(…, device=…)")
    if wrong := [name for name, buffer in module.named_buffers() if buffer.is_meta]:
        raise ValueError(
            f"the buffers {', '.join(wrong[:6])} are on meta, and nobody knows their values: make "
            "them on their device"
        )
