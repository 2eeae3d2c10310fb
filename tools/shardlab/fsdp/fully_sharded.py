"""FSDP: a model whose parameters, gradients and optimizer state are sharded over an axis.

    model = GPT(…)                                        # the same weights on every rank
    model = FSDP(model, grid.data, units=model.blocks)    # each block a unit, the rest the root's
    optimizer = AdamW(model.parameters())                 # one flat shard a unit
    loss = model(tokens)…; loss.backward(); optimizer.step()

Every rank computes on its own part of the batch with full parameters, which exist for one unit at a
time. Only 1/n of everything persists. `life_cycle.py` has the states of a unit, and `runtime.py`
says when they change.

Flat shards have a price: an optimizer sees a unit's parameters as one vector. Elementwise
optimizers (SGD, Adam, AdamW, RMSprop, Adagrad …) are exact and fast, with one tensor instead of
dozens. Optimizers that use a parameter's shape or norm (LAMB, Adafactor, Muon) don't work, nor do
parameter groups that divide a unit. `local_parameters` returns each parameter's local piece.
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
from shardlab.fsdp.flat_parameter import FlatParameter
from shardlab.fsdp.mixed_precision import MixedPrecision
from shardlab.fsdp.policies import BackwardPrefetch, ShardingStrategy
from shardlab.fsdp.runtime import Runtime
from shardlab.fsdp.unit import Unit
from shardlab.fsdp.wrap import assign_parameters, build_unit
from shardlab.layers import sharding
from shardlab.layers.dropout import number_replicas


class FSDP(nn.Module):
    """Wraps a model; its forward is the model's.

    Every rank must run the same units in the same order. The ranks compare their orders, and raise
    an error if they differ. The losses of different ranks may depend on different units and
    parameters; an unused parameter's gradient counts as zero.

    Use `clip_grad_norm_` of this class for the norm of the whole model's gradients. torch's
    functions see only this rank's shards: `torch.nn.utils.clip_grad_norm_` would clip by another
    norm on each rank, and a GradScaler would skip the step on some ranks only.

    Args:
        module: the model, with the same weights on every rank and on its device; or a model of ours
            on meta, `GPT(device="meta")`, of which each rank draws only its own shards.
        axis: the axis over which parameters are sharded (under NO_SHARD: the axis of replicas).
        units: modules to gather and release as one unit each, usually the transformer blocks.
        strategy: what is sharded, and when.
        replicate: the second axis of a hybrid strategy.
        mixed_precision: dtypes of the working copies.
        backward_prefetch: when the next unit of backward is gathered.
        forward_prefetch: whether the next unit of forward is gathered early.
        device: the device for a model on meta.

    Attributes:
        units: the units, the root first.
        runtime: runs the units' gathers, releases and reductions.
        tied: the flat parameter of `module.tied_weight`, of which another pipeline stage has a
            copy; None without such a weight.

    Raises:
        ValueError: the settings contradict each other, a unit isn't in the model, or a parameter is
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
        _check_devices(module, device)
        self.shard_axis, self.replicate_axis = strategy.axes(axis, replicate)
        self.precision = mixed_precision or MixedPrecision()
        axes = (self.shard_axis, self.replicate_axis)
        tied = getattr(module, "tied_weight", None)
        tied_name = next((n for n, p in module.named_parameters() if p is tied), None)
        self.units: tuple[Unit, ...] = tuple(
            build_unit(
                name, m, slots, axes=axes, precision=self.precision, device=device, tied=tied
            )
            for name, (m, slots) in assign_parameters(module, units).items()
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
        """All flat parameters, unit by unit."""
        return [flat for unit in self.units for flat in unit.flats]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Context manager: a backward inside holds its full gradients and reduces nothing.

        The next backward adds to them. This saves the reduction and costs the memory of the full
        gradient on every rank. Run the last micro-batch outside, which reduces the sum.
        """
        before, self.runtime.sync = self.runtime.sync, False
        try:
            yield
        finally:
            self.runtime.sync = before

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset all gradients, also those that `no_sync` holds and no optimizer knows."""
        super().zero_grad(set_to_none)
        for gradient in (gradient for unit in self.units for gradient in unit.gradients):
            gradient.drop()

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Context manager: gather all units' full parameters, to read them or to generate text.

        It needs the memory of the whole model. Under mixed precision, parameters have the dtype of
        the computation. Changes to them inside are lost.
        """
        gathers = self.runtime.gathers
        for unit in self.units:
            gathers.unshard(unit)
        gathers.pinned = True
        try:
            yield
        finally:
            gathers.pinned = False
            gathers.release_all()

    def whole_parameters(self, values: str = "data") -> dict[str, Tensor]:
        """Return every whole parameter by name, in the optimizer's dtype; every rank calls this.

        A rank then holds the whole model, or all of its stage; see `iterate_whole_parameters`.

        Args:
            values: "data" for the parameters, "grad" for the gradients of those that have one.
        """
        return {name: x.clone() for name, x in self.iterate_whole_parameters(values)}

    def iterate_whole_parameters(self, values: str = "data") -> Iterator[tuple[str, Tensor]]:
        """Yield (name, whole parameter), of one unit at a time; every rank must go through all.

        Parameters that are cut over a tensor axis are gathered over it too.
        """
        for flat in self.flats:
            local_f = getattr(flat.shard_f, values)
            if local_f is None:
                continue
            whole_F = flat.axis.all_gather(local_f.detach())
            for number, (name, leaf) in enumerate(zip(flat.layout.names, flat.leaves, strict=True)):
                yield name, sharding.whole(leaf, flat.view(whole_F, number))

    def local_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield (name, piece) for each parameter of which this rank has a piece.

        A piece is a view [elements] of the shard, and its `.grad` a view of the shard's. It has the
        marks of the whole parameter, such as how it is cut over the tensor axis.
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

        The norm is that of the whole model, with each parameter counted once. Pieces differ along
        the sharding axis. The replicas of HYBRID_SHARD and NO_SHARD are equal and not added.

        Args:
            max_norm: the largest norm of all parameters' gradients.
            axis: the ranks that hold the whole model together; by default the sharding axis. With
                tensor parallelism: `grid.axis("tensor", "data")`.
            tensor: the tensor axis, whose replicated parameters are counted once.

        Raises:
            ValueError: `axis` contains replicas, whose gradients would count several times.
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


def _check_devices(module: nn.Module, device: torch.device | None) -> None:
    """Refuse a model on meta without a device, and buffers on meta, which can't be drawn."""
    if device is None and any(parameter.is_meta for parameter in module.parameters()):
        raise ValueError("the model is on meta: say where its shards are to be, FSDP(…, device=…)")
    if wrong := [name for name, buffer in module.named_buffers() if buffer.is_meta]:
        raise ValueError(
            f"the buffers {', '.join(wrong[:6])} are on meta, and nobody knows their values: make "
            "them on their device"
        )
