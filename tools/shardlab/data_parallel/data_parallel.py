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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.data_parallel import replicas
from shardlab.data_parallel.buckets import BUCKET_BYTES, FIRST_BUCKET_BYTES, Bucket, Slot, assign
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
    but keeps everything in one bucket, without overlap, until then, and keeps its first buckets
    for good where it looks for unused parameters; so does this.

    After a backward that raised, set the gradients to None (`zero_grad`) and run the step again. A
    rank that gives a step up still takes part in its collectives, with NaN, so that the others,
    which may not have failed, don't take its next step's gradients for this one's.

    Args:
        parameters: names and parameters, in the order of the forward pass.
        axis: the ranks that hold the same parameters and see different shares of the batch.
        reduction: "mean" where each rank's loss is a mean over its share and shares are equal;
            "sum"; or "tokens" where each rank's loss is a *sum* over its tokens: `finish(tokens=n)`
            then divides by the tokens of all ranks, so that a rank with few tokens counts little.
        shares: into how many shares the batch is cut, if not one a rank of `axis`. An expert's
            gradient already holds the tokens of all expert-parallel ranks, which sent them there:
            its axis is `grid.data`, its shares are data times expert ranks.
        backwards: how many backward passes (micro-batches) make up a step; gradients add up, and
            are reduced in the last. The losses' division by their number is the caller's.
        find_unused: allow parameters that a step does not reach. Without it, they are an error.
        start: "broadcast" rank 0's values, "verify" that all are equal already, or "trust".
        main_grads: gather gradients in each `parameter.main_grad`, of this dtype (fp32 under bf16
            weights), and leave `.grad` None: micro-batches then add up without rounding to the
            weights' dtype, and layers with `gradient_accumulation` add to it themselves. `finish`
            leaves the whole batch's gradient there; `zero_grad` comes before the next step.
        first_bucket_bytes: the size of the first bucket; small, so that it leaves early.
        bucket_bytes: the size of the others.

    Attributes:
        backwards: as above; may be set between steps.
        attribute: where a parameter's gradient is after `finish`: "grad" or "main_grad".

    Raises:
        ValueError: an unknown setting, or no parameters at all.
        ReplicaError: the ranks' parameters differ, or what is frozen does.
    """

    def __init__(
        self, parameters: Iterable[tuple[str, nn.Parameter]], axis: Axis, *,
        reduction: str = "mean", shares: int | None = None, backwards: int = 1,
        find_unused: bool = False, start: str = "broadcast",
        main_grads: torch.dtype | None = None,
        first_bucket_bytes: int = FIRST_BUCKET_BYTES, bucket_bytes: int = BUCKET_BYTES,
    ) -> None:  # fmt: skip
        """Make the replicas equal, lay out the buckets and hang a hook on each parameter."""
        if reduction not in REDUCTIONS or start not in STARTS:
            raise ValueError(
                f"reduction is one of {', '.join(REDUCTIONS)} and start one of "
                f"{', '.join(STARTS)}; found {reduction!r} and {start!r}"
            )
        if main_grads and find_unused:
            raise ValueError(
                "main_grads with find_unused: a main_grad is never None, so no optimizer could "
                "tell an unused parameter from one with a gradient of zero"
            )
        once: dict[int, tuple[str, nn.Parameter]] = {}
        for name, parameter in parameters:
            once.setdefault(id(parameter), (name, parameter))
        named = list(once.values())
        self.axis = axis
        self.backwards = backwards
        self._reduction = reduction
        self._scale = 1.0 / (shares or axis.size) if reduction == "mean" else 1.0
        self._find_unused = find_unused
        self._main_grads = main_grads
        self.attribute = "main_grad" if main_grads else "grad"
        self._spent = False  # main_grads hold a step that is over
        self._failed = False  # a backward of this step raised
        self._watched = -1  # the backward that was seen last
        self._caps = (first_bucket_bytes, bucket_bytes)
        self._frozen = [(name, p) for name, p in named if not p.requires_grad]
        self._slots = [Slot(name, p) for name, p in named if p.requires_grad]
        if not named:
            raise ValueError("no parameters came: nothing to reduce; was a generator used before?")
        STARTS[start](named, axis)
        self._syncing = True
        self._launched = 0
        self._arrived: list[Slot] | None = None if find_unused else []  # in the first step only
        self._next_order: list[Slot] | None = None
        self._lay_out(self._slots[::-1])
        self._hooks = [
            slot.parameter.register_post_accumulate_grad_hook(self._hook(slot))  # type: ignore[no-untyped-call]
            for slot in self._slots
        ]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Only accumulate in the backward passes inside; they don't count among `backwards`."""
        self._syncing, before = False, self._syncing
        try:
            yield
        finally:
            self._syncing = before

    def zero_grad(self) -> None:
        """Forget the last step's gradients, also one's that is given up half way.

        With main_grads, every step must begin with this.
        """
        if self._failed or self._launched or any(slot.arrivals for slot in self._slots):
            self._give_up()
        for slot in self._slots:
            slot.parameter.grad = None
        if self._main_grads:
            self._follow_next_order()
            for bucket in self.buckets:
                bucket.flat_N.zero_()
            self._spent = False

    def finish(self, *, tokens: int | Tensor | None = None) -> None:
        """Wait until every gradient is reduced; each is then a view into its bucket.

        Args:
            tokens: under reduction="tokens", the tokens in this rank's share of the batch.

        Raises:
            RuntimeError: a backward raised; or a parameter got no gradient, or too few, and
                `find_unused` is off.
            ValueError: `tokens` without reduction="tokens", or the other way round.
        """
        if (tokens is not None) != (self._reduction == "tokens"):
            raise ValueError(
                f'finish(tokens=…) goes with reduction="tokens", not {self._reduction!r}'
            )
        self._refuse_thawed()
        if not self._slots:
            return
        if self._failed:
            raise RuntimeError(
                "a backward of this step raised: zero_grad(), and run the step again"
            )
        if not self._find_unused:
            self._refuse_unused()
        used = self._collect(tokens)
        if used is not None:
            self._forget_unused(used)
        self._reset()

    def _collect(self, tokens: int | Tensor | float | None) -> Tensor | None:
        """Do what is left of a step's collectives, in one order; return who is used somewhere."""
        used = self._used() if self._find_unused else None
        self._launch(everything=True)
        total = None if tokens is None else self._total(tokens)
        for bucket in self.buckets:
            assert bucket.pending is not None
            bucket.pending.wait()
            if total is not None:
                bucket.flat_N.div_(total)
        return None if used is None else self.axis.all_reduce(used, op="max")

    def _give_up(self) -> None:
        """Do it with NaN, and begin anew."""
        for bucket in self.buckets[self._launched :]:
            bucket.flat_N.fill_(math.nan)
            bucket.pending = self.axis.start_all_reduce(bucket.flat_N, out=bucket.flat_N)
        self._launched = len(self.buckets)
        self._collect(math.nan if self._reduction == "tokens" else None)
        if self._arrived is not None:
            self._arrived = [slot for bucket in self.buckets for slot in bucket.slots]
        self._reset()
        self._failed = False

    def remove(self) -> None:
        """Take the hooks off; gradients stay where they are."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # ------------------------------------------------------------------ while backward runs

    def _hook(self, slot: Slot) -> Callable[[Tensor], None]:
        # The hook is handed the *parameter*. Reducing that instead of its .grad would average the
        # weights, leave the gradients local, and look like training for a while.
        def arrived(_: Tensor) -> None:
            self._watch()
            if self._failed and not self._holds_gradients:
                self._give_up()
            if self._spent:
                raise RuntimeError(
                    f"{slot.name} got a gradient while its main_grad still holds the last step's: "
                    "call zero_grad() between steps, before the forward pass"
                )
            if not self._main_grads:
                self._follow_next_order()
            if slot.bucket.pending is not None or slot.arrivals == self.backwards:
                raise RuntimeError(
                    f"{slot.name} got one more gradient than the {self.backwards} of a step: call "
                    "finish() after the last backward; to accumulate, set backwards, or run the "
                    "first ones in no_sync(); after a backward that raised, call zero_grad()"
                )
            if self._failed:
                raise RuntimeError(
                    f"{slot.name} got a gradient on top of those of a backward that raised: call "
                    "zero_grad() and run the step again"
                )
            slot.arrivals += self._syncing
            if slot.arrivals == self.backwards:
                self._complete(slot)
            else:
                slot.bucket.fold((slot,))

        return arrived

    def _watch(self) -> None:
        running = torch._C._current_graph_task_id()
        if running != self._watched:
            self._watched = running
            OnFailure(self._note_failure)

    def _note_failure(self) -> None:
        self._failed = True

    @property
    def _holds_gradients(self) -> bool:
        """Whether gradients of the step so far are still in the buckets, not None."""
        return bool(self._main_grads) or any(s.parameter.grad is s.view for s in self._slots)

    def _complete(self, slot: Slot) -> None:
        if self._arrived is not None:
            self._arrived.append(slot)
        slot.bucket.missing -= 1
        if slot.bucket.missing == 0:
            self._launch()

    def _launch(self, everything: bool = False) -> None:
        """Start the all-reduces of the complete buckets that none incomplete stands before."""
        for bucket in self.buckets[self._launched :]:
            if bucket.missing and not everything:
                return
            bucket.fold(bucket.slots, scale=self._scale)
            bucket.pending = self.axis.start_all_reduce(bucket.flat_N, out=bucket.flat_N)
            self._launched += 1

    def _follow_next_order(self) -> None:
        # Not while anything lies in the buckets: the new ones are empty.
        if self._next_order is not None:
            self._lay_out(self._next_order)
            self._next_order = None

    # ------------------------------------------------------------------ at the end of a step

    def _total(self, tokens: int | Tensor | float) -> Tensor:
        device = self.buckets[0].flat_N.device
        mine = torch.as_tensor(tokens, dtype=torch.float64, device=device).reshape(1)
        total = self.axis.all_reduce(mine)[0]  # without dimensions it does not promote gradients
        return total.where(total != 0, 1)  # of no token at all the sum is 0, and no 0 / 0

    def _reset(self) -> None:
        if self._arrived is not None:
            self._next_order, self._arrived = self._agreed_order(self._arrived), None
        for bucket in self.buckets:
            bucket.missing = len(bucket.slots)
            bucket.pending = None
        for slot in self._slots:
            slot.arrivals = 0
        self._launched = 0
        self._spent = self._main_grads is not None

    def _agreed_order(self, arrived: list[Slot]) -> list[Slot] | None:
        place = {id(slot): i for i, slot in enumerate(self._slots)}
        order = torch.tensor([place[id(s)] for s in arrived], device=self.buckets[0].flat_N.device)
        agreed = [self._slots[i] for i in self.axis.broadcast(order).tolist()]
        now = [slot for bucket in self.buckets for slot in bucket.slots]
        return None if agreed == now else agreed

    def _lay_out(self, order: list[Slot]) -> None:
        groups = assign([slot.parameter for slot in order], self._caps)
        self.buckets = [Bucket([order[i] for i in group], self._main_grads) for group in groups]

    # ------------------------------------------------------------------ parameters without gradient

    def _refuse_unused(self) -> None:
        late = [slot for slot in self._slots if slot.arrivals < self.backwards]
        if late:
            names = ", ".join(f"{s.name} ({s.arrivals} of {self.backwards})" for s in late[:8])
            raise RuntimeError(
                f"{len(late)} of {len(self._slots)} parameters did not get their gradients on data "
                f"rank {self.axis.rank}: {names}{', …' if len(late) > 8 else ''}. Every parameter "
                "must be part of the loss in each backward; freeze those that are not, or pass "
                "find_unused=True"
            )

    def _refuse_thawed(self) -> None:
        thawed = [name for name, parameter in self._frozen if parameter.requires_grad]
        if thawed:
            raise RuntimeError(
                f"{', '.join(thawed)} was frozen when DataParallel was made and is not now: its "
                "gradient is this rank's alone; make DataParallel after choosing what to train"
            )

    def _used(self) -> Tensor:
        """One flag a parameter: has it a gradient on this rank? [parameters]."""
        flags = [slot.parameter.grad is not None for slot in self._slots]
        return torch.tensor(flags, dtype=torch.int32, device=self.buckets[0].flat_N.device)

    def _forget_unused(self, used: Tensor) -> None:
        """Leave None where no rank had a gradient: an optimizer treats a zero differently."""
        for slot, somewhere in zip(self._slots, used, strict=True):
            slot.parameter.grad = slot.view if somewhere else None
