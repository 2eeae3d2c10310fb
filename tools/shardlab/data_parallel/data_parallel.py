"""Data parallelism: every rank has the whole model and a share of the batch; gradients are reduced.

Gradients lie in buckets. When the last gradient of a bucket has been accumulated its all-reduce
starts, while backward goes on with the layers below. `finish` waits for what is still under way.

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
from shardlab.data_parallel.buckets import BUCKET_BYTES, FIRST_BUCKET_BYTES, Bucket, Slot
from shardlab.data_parallel.reducer import Reducer
from shardlab.layers.engine import OnFailure

REDUCTIONS = ("mean", "sum", "tokens")
STARTS = {"broadcast": replicas.broadcast, "verify": replicas.verify, "trust": lambda *_: None}


class DataParallel:
    """Reduces the gradients of `parameters` over `axis`, in buckets, during backward.

    A parameter that is frozen when this is made is left out (where all are, as on a frozen stage of
    a pipeline, nothing is done). One that stands in the list twice (tied) is reduced once.

    Buckets are all-reduced in one order on every rank, whatever order gradients come in: a backend
    matches collectives by their order. At first that is the reverse of `parameters`; after the
    first step it is the order in which rank 0 saw them become ready. PyTorch's DDP does the same,
    but keeps everything in one bucket, without overlap, until then.

    After a backward that raised, set the gradients to None (`zero_grad`) and run the step again. A
    rank that gives a step up still takes part in its collectives, with NaN, so that the others,
    which may not have failed, don't take its next step's gradients for this one's.

    Args:
        parameters: names and parameters, in the order of the forward pass.
        axis: the ranks that hold the same parameters and see different shares of the batch.
        reduction: "mean" where each rank's loss is a mean over its share and shares are equal;
            "sum"; or "tokens" where each rank's loss is a *sum* over its tokens: `finish(tokens=n)`
            then divides by the tokens of all ranks, so that a rank with few tokens counts little.
        backwards: how many backward passes (micro-batches) make up a step; gradients add up, and
            are reduced in the last. The losses' division by their number is the caller's.
        start: "broadcast" rank 0's values, "verify" that all are equal already, or "trust".
        main_grads: gather gradients in each `parameter.main_grad`, of this dtype (fp32 under bf16
            weights), and leave `.grad` None: micro-batches then add up without rounding to the
            weights' dtype, and layers with `gradient_accumulation` add to it themselves. `finish`
            leaves the whole batch's gradient there; `zero_grad` comes before the next step.
        bucket_bytes: the size of a bucket; the first is 1 MiB at most, so that it leaves early.
        batch: the ranks that share the batch, if not those of `axis`: an expert's copies are not.

    Attributes:
        backwards: as above; may be set between steps.
        attribute: where a parameter's gradient is after `finish`: "grad" or "main_grad".

    Raises:
        ValueError: an unknown setting, or no parameters at all.
        ReplicaError: the ranks' parameters differ, or what is frozen does.
    """

    def __init__(
        self, parameters: Iterable[tuple[str, nn.Parameter]], axis: Axis, *,
        reduction: str = "mean", backwards: int = 1, start: str = "broadcast",
        main_grads: torch.dtype | None = None, bucket_bytes: int = BUCKET_BYTES,
        batch: Axis | None = None,
    ) -> None:  # fmt: skip
        """Make the replicas equal, lay out the buckets and hang a hook on each parameter."""
        if reduction not in REDUCTIONS or start not in STARTS:
            raise ValueError(
                f"reduction is one of {', '.join(REDUCTIONS)} and start one of "
                f"{', '.join(STARTS)}; found {reduction!r} and {start!r}"
            )
        once: dict[int, tuple[str, nn.Parameter]] = {}
        for name, parameter in parameters:
            once.setdefault(id(parameter), (name, parameter))
        named = list(once.values())
        self.axis = axis
        self.backwards = backwards
        self._reduction = reduction
        self._main_grads = main_grads
        self.attribute = "main_grad" if main_grads else "grad"
        self._spent = False  # main_grads hold a step that is over
        self._failed = False  # a backward of this step raised
        self._watched = -1  # the backward that was seen last
        self._frozen = [(name, p) for name, p in named if not p.requires_grad]
        self._slots = [Slot(name, p) for name, p in named if p.requires_grad]
        if not named:
            raise ValueError("no parameters came: nothing to reduce; was a generator used before?")
        STARTS[start](named, axis)
        self._reducer = Reducer(
            self._slots, axis, caps=(min(FIRST_BUCKET_BYTES, bucket_bytes), bucket_bytes),
            mean=reduction == "mean", main_grads=main_grads, batch=batch or axis,
            device=named[0][1].device,
        )  # fmt: skip
        for slot in self._slots:
            slot.parameter.register_post_accumulate_grad_hook(partial(self._arrived, slot))  # type: ignore[no-untyped-call]

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets, in the order in which they are reduced."""
        return self._reducer.buckets

    def zero_grad(self) -> None:
        """Forget the last step's gradients, also one's that is given up half way.

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
            RuntimeError: a backward raised; or a parameter got no gradient, or too few.
            ValueError: `tokens` without reduction="tokens", or the other way round.
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
        """Do what is left of a step's collectives with NaN, and begin anew."""
        self._reducer.give_up(math.nan if self._reduction == "tokens" else None)
        self._spent, self._failed = self._main_grads is not None, False

    # ------------------------------------------------------------------ while backward runs

    def _arrived(self, slot: Slot, _: Tensor) -> None:
        # A hook is handed the *parameter*. Reducing that instead of its .grad would average the
        # weights, leave the gradients local, and look like training for a while.
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
        """Whether gradients of the step so far are still in the buckets, not None."""
        return bool(self._main_grads) or any(s.parameter.grad is s.view for s in self._slots)

    # ------------------------------------------------------------------ parameters without gradient

    def _refuse_unused(self) -> None:
        late = [slot for slot in self._slots if slot.arrivals < self.backwards]
        if late:
            names = ", ".join(f"{s.name} ({s.arrivals} of {self.backwards})" for s in late[:8])
            raise RuntimeError(
                f"{len(late)} of {len(self._slots)} parameters did not get their gradients on data "
                f"rank {self.axis.rank}: {names}{', …' if len(late) > 8 else ''}. Every parameter "
                "must be part of the loss in each backward; freeze those that are not"
            )

    def _refuse_thawed(self) -> None:
        thawed = [name for name, parameter in self._frozen if parameter.requires_grad]
        if thawed:
            raise RuntimeError(
                f"{', '.join(thawed)} was frozen when DataParallel was made and is not now: its "
                "gradient is this rank's alone; make DataParallel after choosing what to train"
            )
