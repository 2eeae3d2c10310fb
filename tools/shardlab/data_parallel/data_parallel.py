"""Data parallelism: every rank has the whole model and a share of the batch; gradients are reduced.

Gradients are in buckets. When the last gradient of a bucket has been accumulated, its all-reduce
starts, while backward continues with the layers below. `finish` waits for the pending all-reduces.

    replicas = DataParallel(model.named_parameters(), grid.data)
    loss(model(share)).backward()
    replicas.finish()            # from here on each parameter's .grad is the whole batch's
    optimizer.step(); optimizer.zero_grad()

PyTorch's counterpart is DistributedDataParallel with its C++ `Reducer`, Megatron's is
`DistributedDataParallel` with `_ParamAndGradBuffer`. Both hang a hook on each parameter, as here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.data_parallel import replicas
from shardlab.data_parallel.buckets import BUCKET_BYTES, FIRST_BUCKET_BYTES, Bucket, Reducer, Slot
from shardlab.layers.engine import OnFailure

REDUCTIONS = ("mean", "sum", "tokens")
STARTS = {"broadcast": replicas.broadcast, "verify": replicas.verify, "trust": lambda *_: None}


class DataParallel:
    """Reduces the gradients of `parameters` over `axis`, in buckets, during backward.

    A parameter that is frozen at construction is ignored; if all are frozen, as on a frozen stage
    of a pipeline, nothing is done. A tied parameter, which is in the list twice, is reduced once.

    Buckets are all-reduced in the same order on every rank, because a backend matches collectives
    by their order. In the first step this is the reverse order of `parameters`; later it is the
    order in which gradients became ready on rank 0. PyTorch's DDP does the same, but until then it
    keeps all gradients in one bucket, without overlap.

    After a backward that raised, set the gradients to None (`zero_grad`) and run the step again. A
    rank that abandons a step still takes part in its collectives, with NaN. Otherwise ranks that
    haven't failed would sum its next step's gradients with this step's.

    Args:
        parameters: names and parameters, in the order of the forward pass.
        axis: the ranks that hold the same parameters and see different shares of the batch.
        reduction: "mean" if each rank's loss is a mean over its share and shares are equal; "sum";
            or "tokens" if each rank's loss is a *sum* over its tokens: `finish(tokens=n)` then
            divides by the tokens of all ranks, so that each token has the same weight.
        backwards: the number of backward passes (micro-batches) of a step; their gradients are
            accumulated, and reduced in the last. The caller must divide the losses by this number.
        start: "broadcast" rank 0's values, "verify" that all ranks' are equal, or "trust" that.
        main_grads: accumulate gradients in each `parameter.main_grad`, of this dtype (fp32 for bf16
            weights), and leave `.grad` None. Micro-batches are then added without rounding to the
            weights' dtype, and layers with `gradient_accumulation` add to it directly. After
            `finish` it is the whole batch's gradient; call `zero_grad` before the next step.
        bucket_bytes: the size of a bucket; the first is at most 1 MiB, so that it is reduced early.
        batch: the ranks that share the batch, if they differ from `axis` (as for experts).

    Attributes:
        backwards: see above; may be changed between steps.
        attribute: the parameters' attribute that has the gradient after `finish`: "grad" or
            "main_grad".

    Raises:
        ValueError: a setting is unknown, or there are no parameters.
        ReplicaError: the ranks' parameters differ, or the sets of frozen ones do.
    """

    def __init__(
        self, parameters: Iterable[tuple[str, nn.Parameter]], axis: Axis, *,
        reduction: str = "mean", backwards: int = 1, start: str = "broadcast",
        main_grads: torch.dtype | None = None, bucket_bytes: int = BUCKET_BYTES,
        batch: Axis | None = None,
    ) -> None:  # fmt: skip
        """Make the replicas equal, allocate the buckets and register a hook on each parameter."""
        if reduction not in REDUCTIONS or start not in STARTS:
            raise ValueError(
                f"reduction is one of {', '.join(REDUCTIONS)} and start one of "
                f"{', '.join(STARTS)}; found {reduction!r} and {start!r}"
            )
        unique: dict[int, tuple[str, nn.Parameter]] = {}
        for name, parameter in parameters:
            unique.setdefault(id(parameter), (name, parameter))
        named_parameters = list(unique.values())
        self.axis = axis
        self.backwards = backwards
        self._reduction = reduction
        self._main_grads = main_grads
        self.attribute = "main_grad" if main_grads else "grad"
        self._spent = False  # main_grads still have the last step's gradients
        self._failed = False  # a backward of this step raised
        self._watched = -1  # autograd's id of the last backward that was seen
        self._frozen = [(name, p) for name, p in named_parameters if not p.requires_grad]
        self._slots = [Slot(name, p) for name, p in named_parameters if p.requires_grad]
        if not named_parameters:
            raise ValueError("no parameters came: nothing to reduce; was a generator used before?")
        STARTS[start](named_parameters, axis)
        self._reducer = Reducer(
            self._slots, axis, caps=(min(FIRST_BUCKET_BYTES, bucket_bytes), bucket_bytes),
            mean=reduction == "mean", main_grads=main_grads, batch=batch or axis,
            device=named_parameters[0][1].device,
        )  # fmt: skip
        for slot in self._slots:
            slot.parameter.register_post_accumulate_grad_hook(partial(self._count_gradient, slot))  # type: ignore[no-untyped-call]

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets, in the order in which they are reduced."""
        return self._reducer.buckets

    def zero_grad(self) -> None:
        """Reset the gradients of the last step, or of one that is abandoned.

        With main_grads, every step must begin with this.
        """
        if self._failed or any(slot.arrivals for slot in self._slots):
            self._give_up()
        for slot in self._slots:
            slot.parameter.grad = None
        if self._main_grads:
            self._reducer.follow_next_order()
            for bucket in self.buckets:
                bucket.flat_N.zero_()
            self._spent = False

    def finish(self, *, tokens: int | Tensor | None = None) -> None:
        """Wait until every gradient is reduced; each is then a view into its bucket.

        Args:
            tokens: under reduction="tokens", the tokens in this rank's share of the batch.

        Raises:
            RuntimeError: a backward raised; or a parameter got too few gradients.
            ValueError: `tokens` without reduction="tokens", or the reverse.
        """
        if (tokens is not None) != (self._reduction == "tokens"):
            raise ValueError(
                f'finish(tokens=…) goes with reduction="tokens", not {self._reduction!r}'
            )
        self._refuse_thawed()
        if self._failed:
            raise RuntimeError(
                "a backward of this step raised: zero_grad(), and run the step again"
            )
        self._refuse_unused()
        self._reducer.collect(tokens)
        self._spent = self._main_grads is not None

    def _give_up(self) -> None:
        """Run the remaining collectives of a step with NaN, and reset."""
        self._reducer.give_up(math.nan if self._reduction == "tokens" else None)
        self._spent, self._failed = self._main_grads is not None, False

    # ------------------------------------------------------------------ while backward runs

    def _count_gradient(self, slot: Slot, _: Tensor) -> None:
        # The hook's argument is the *parameter*. Reducing it instead of its .grad would average
        # the weights and leave the gradients local, and would look like training for a while.
        self._watch()
        if self._failed and not self._holds_gradients:
            self._give_up()
        if self._spent:
            raise RuntimeError(
                f"{slot.name} got a gradient while its main_grad still holds the last step's: "
                "call zero_grad() between steps, before the forward pass"
            )
        if not self._main_grads:
            self._reducer.follow_next_order()
        if slot.bucket.pending is not None or slot.arrivals == self.backwards:
            raise RuntimeError(
                f"{slot.name} got one more gradient than the {self.backwards} of a step: call "
                "finish() after the last backward; to accumulate, set backwards; after a "
                "backward that raised, call zero_grad()"
            )
        if self._failed:
            raise RuntimeError(
                f"{slot.name} got a gradient on top of those of a backward that raised: call "
                "zero_grad() and run the step again"
            )
        slot.arrivals += 1
        if slot.arrivals == self.backwards:
            self._reducer.complete(slot)
        else:
            slot.bucket.fold((slot,))

    def _watch(self) -> None:
        running = torch._C._current_graph_task_id()
        if running != self._watched:
            self._watched = running
            OnFailure(partial(setattr, self, "_failed", True))

    @property
    def _holds_gradients(self) -> bool:
        """Whether this step's gradients are still in the buckets, not set to None."""
        return bool(self._main_grads) or any(s.parameter.grad is s.view for s in self._slots)

    # ------------------------------------------------------------------ parameters without gradient

    def _refuse_unused(self) -> None:
        incomplete = [slot for slot in self._slots if slot.arrivals < self.backwards]
        if incomplete:
            names = ", ".join(
                f"{s.name} ({s.arrivals} of {self.backwards})" for s in incomplete[:8]
            )
            raise RuntimeError(
                f"{len(incomplete)} of {len(self._slots)} parameters did not get their gradients "
                f"on data rank {self.axis.rank}: {names}{', …' if len(incomplete) > 8 else ''}. "
                "Every parameter must be part of the loss in each backward; freeze those that are "
                "not"
            )

    def _refuse_thawed(self) -> None:
        thawed = [name for name, parameter in self._frozen if parameter.requires_grad]
        if thawed:
            raise RuntimeError(
                f"{', '.join(thawed)} was frozen when DataParallel was made and is not now: its "
                "gradient is this rank's alone; make DataParallel after choosing what to train"
            )
