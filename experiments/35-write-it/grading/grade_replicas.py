"""Buckets beside PyTorch's DDP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from grading import RANKS
from grading.demands import WrongError, drawn, loss_of, network, report, same, sends
from grading.watch import Watch

# Sizes with which each usual mistake fills other buckets: one that is full exactly, a gradient
# that is larger than a bucket, and other ones from the first parameter on.
WIDTHS, FROZEN, BUCKET = (3, 2, 5, 3, 3), "6.bias", 96
LARGE = 1 << 20  # bytes, in which all gradients fit
HOLD = 10.0  # seconds in which a backward must end that waits for nothing
BREATH = 0.5  # seconds in which a `finish` that doesn't wait returns
DONE = "done"
EARLY = (
    "Is it a gradient that isn't there yet? A bucket may start when the last of its gradients is "
    "in p.grad: register_post_accumulate_grad_hook."
)
Gradients = dict[str, Tensor]
Buckets = list[list[str]]


def model() -> torch.nn.Module:
    """Return the network with one parameter that needs no gradient."""
    module = network(*WIDTHS)
    module.get_parameter(FROZEN).requires_grad_(False)
    return module


def fill(sizes: Mapping[str, int], opens: Callable[[int, int], bool]) -> Buckets:
    """Return the buckets, if `opens(bytes in the last one, size)` says when one more is opened."""
    buckets: Buckets = []
    for name, size in sizes.items():
        if not buckets or opens(sum(sizes[member] for member in buckets[-1]), size):
            buckets.append([])
        buckets[-1].append(name)
    return buckets


def fillings(module: torch.nn.Module, limit: int) -> tuple[Buckets, dict[str, list[int]]]:
    """Return the right buckets from the last one on, and the bytes that usual mistakes send."""
    every = {name: p.nbytes for name, p in reversed([*module.named_parameters()])}
    sizes = {name: size for name, size in every.items() if name != FROZEN}
    first = dict(reversed(sizes.items()))

    def fits(filled: int, size: int) -> bool:
        return filled + size > limit

    wrong = {
        "The buckets were filled from the first parameter: begin with the last.": fill(first, fits),
        "A bucket was closed when it was reached or passed: close it before a gradient that would "
        "make it too large.": fill(sizes, lambda filled, size: filled >= limit),
        "A bucket took one gradient more than fits: close it before.": fill(
            sizes, lambda filled, size: filled > limit
        ),
        "A gradient that makes a bucket exactly full still belongs in it: compare with >.": fill(
            sizes, lambda filled, size: filled + size >= limit
        ),
        "A gradient larger than a bucket joined others: it has a bucket of its own.": fill(
            sizes, lambda filled, size: fits(filled, size) and size <= limit
        ),
        "A gradient larger than a bucket was left out: it has a bucket of its own.": fill(
            {name: size for name, size in sizes.items() if size <= limit}, fits
        ),
        "The parameter that needs no gradient takes up room: leave it out.": fill(every, fits),
        "Each gradient was sent by itself: a bucket takes as many as fit.": fill(
            sizes, lambda filled, size: True
        ),
        "All gradients were sent as one: a bucket takes no more than fit.": fill(
            sizes, lambda filled, size: False
        ),
    }
    sent = {cause: [bytes_of(bucket, sizes) for bucket in each] for cause, each in wrong.items()}
    return fill(sizes, fits), sent


def bytes_of(bucket: list[str], sizes: Mapping[str, int]) -> int:
    """Return what a bucket sends; a parameter without a gradient sends nothing."""
    return sum(sizes.get(name, 0) for name in bucket)


def data(step: int, rank: int) -> Tensor:
    """Return a rank's part of a batch."""
    return drawn(50 + RANKS * step + rank, 4, WIDTHS[0])


def gradients(module: torch.nn.Module, inner: torch.nn.Module, x: Tensor) -> Gradients:
    """Return what backward leaves in the parameters of `inner`, which `module` may wrap."""
    inner.zero_grad()
    loss_of(module(x)).backward()
    return {name: p.grad for name, p in inner.named_parameters() if p.grad is not None}


def ddp(rank: int, steps: int) -> Iterator[tuple[Gradients, Gradients]]:
    """Yield for each step this rank's own gradients, and DDP's means over all ranks."""
    alone, inner = model(), model()
    wrapped = DistributedDataParallel(inner)
    for step in range(steps):
        x = data(step, rank)
        yield gradients(alone, alone, x), gradients(wrapped, inner, x)


def replicas(code: ModuleType, rank: int, watch: Watch) -> list[str]:
    """Compare three steps: the same gradients, in the messages asked for, while backward runs.

    In the first step rank 1 begins its backward when rank 0 has ended its own.
    """
    oracle = [*ddp(rank, steps=3)]
    sent = ""
    for limit in (LARGE, BUCKET):
        trained = model()
        landed: list[str] = []  # whose gradients are there, in this step
        for name, p in trained.named_parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(
                    lambda _, name=name, landed=landed: landed.append(name)
                )
        with watch:
            wrapped = code.Replicas(trained, bucket_bytes=limit)
        sends("Replicas.__init__", watch, [], "The copies are already the same.")
        buckets, wrong = fillings(trained, limit)
        for step, right in enumerate(oracle):
            landed.clear()
            last_landed: list[str] = []  # the gradient that was there last when each message left
            watch.before_send = lambda landed=landed, last_landed=last_landed: last_landed.append(
                landed[-1] if landed else ""
            )
            with watch, one_after_the_other(rank, step, limit, watch) as turn:
                try:
                    gradients(trained, trained, data(step, rank))
                except (AttributeError, TypeError) as error:
                    if "None" in str(error):
                        error.add_note(EARLY)
                    raise
                before = len(watch.entries)
                turn("backward")
                returned = wrapped.finish()
                turn("finish")
            del returned
            when = f"step {step}, with buckets of at most {limit} B"
            if trained.get_parameter(FROZEN).grad is not None:
                raise WrongError(f"{when}: {FROZEN} needs no gradient, and has got one.")
            messages(when, watch, trained, buckets, wrong)
            means_of(when, trained, right, oracle[step - 1][1] if step else {})
            leaves(when, before, last_landed, buckets)
            sizes = {name: p.nbytes for name, p in trained.named_parameters()}
            sent = " + ".join(f"{bytes_of(bucket, sizes)}" for bucket in buckets)
    watch.before_send = lambda: None
    return [report(code, "messages", f"{sent} B, each as soon as backward had filled it")]


@contextmanager
def one_after_the_other(
    rank: int, step: int, limit: int, watch: Watch
) -> Iterator[Callable[[str], None]]:
    """Context manager: in the first step, hold rank 1 until rank 0 is through with its backward.

    Rank 0 then calls what it is given with "backward" and with "finish". Code that waits where it
    should not, or doesn't where it should, shows it every time, not only sometimes.
    """
    store, is_held_back = dist.distributed_c10d._get_default_store(), step == 0
    keys = {of: f"{of} with {limit}" for of in ("backward", "finish")}
    if is_held_back and rank == 1:
        if arrives(store, keys["backward"], HOLD) is None:
            raise WrongError(
                f"step {step}: on rank 0, backward doesn't end before rank 1 has begun its own: "
                "it waits for an all-reduce. In the hook only start it (async_op=True); wait for "
                "it in finish."
            )
        if arrives(store, keys["finish"], BREATH) == DONE:
            raise WrongError(
                f"step {step}: on rank 0, finish returns before rank 1 has sent anything: it "
                "doesn't wait for the all-reduces. Keep each one's work, and call wait() on it."
            )
        slow = watch.before_send
        watch.before_send = lambda: (slow(), time.sleep(0.1))
    if is_held_back and rank == 1:  # its messages have arrived before it finishes
        yield lambda of: time.sleep(0.2) if of == "backward" else None
        return
    if not is_held_back:
        yield lambda of: None
        return
    try:
        yield lambda of: store.set(keys[of], DONE)
    except BaseException:  # the learner's own: rank 1 goes on, and has the same, or waits
        for key in keys.values():
            store.set(key, "raised")
        raise


def arrives(store: dist.Store, key: str, seconds: float) -> str | None:
    """Return a key's value; None: it isn't there within this time."""
    try:
        store.wait([key], timedelta(seconds=seconds))
    except RuntimeError:  # a FileStore has no type of its own for it
        return None
    return bytes(store.get(key)).decode()


def means_of(
    when: str, trained: torch.nn.Module, right: tuple[Gradients, Gradients], before: Gradients
) -> None:
    """Demand the means in `.grad`."""
    local, means = right
    for name, mean in means.items():
        same(f"{when}, gradient of {name}", trained.get_parameter(name).grad, mean, {
            "It is this rank's own: its bucket was not sent, or not waited for, or not copied "
            "back.": local[name],
            "It is the sum: divide by the number of ranks.": RANKS * mean,
            "It is half the mean: it was divided once too often.": mean / RANKS,
            "It is this rank's own, divided by the number of ranks: nothing was added to it, or it "
            "was not waited for.":
                local[name] / RANKS,
            "It is the other rank's: nothing was added to it.": RANKS * mean - local[name],
            "It was divided before the all-reduce had ended: wait first.":
                local[name] / RANKS + (RANKS * mean - local[name]),
            "It was divided before the all-reduce had ended: wait first. ":
                (local[name] + (RANKS * mean - local[name]) / RANKS) / RANKS,
            "The mean was added to this rank's own gradient: write it in its place.":
                local[name] + mean,
            "It is the larger of the ranks' numbers; expected their sum.":
                torch.maximum(local[name], RANKS * mean - local[name]) / RANKS,
            **({"It is the mean of the step before: begin each step with its own gradients.":
                before[name]} if before else {}),
        })  # fmt: skip


def messages(
    when: str, watch: Watch, trained: torch.nn.Module, buckets: Buckets, wrong: dict[str, list[int]]
) -> None:
    """Demand one all-reduce for each bucket, as large as its gradients."""
    sizes = {name: p.nbytes for name, p in trained.named_parameters()}
    sent = sorted(entry.payload for entry in watch.entries)
    cause = next(
        (cause for cause, payloads in wrong.items() if sorted(payloads) == sent),
        "From the last parameter on, a bucket takes as many gradients as fit, and is sent once.",
    )
    if sent == sorted(bytes_of(bucket, sizes) // 2 for bucket in buckets):
        cause = "They have half of their bytes: was something converted to fp32?"
    if not sent:
        cause = "Nothing was sent: is what counts the gradients reset in finish?"
    if {entry.op for entry in watch.entries} - {"all_reduce"}:
        cause = "Send each bucket by one all-reduce."
    right = [("all_reduce", bytes_of(bucket, sizes)) for bucket in buckets]
    sends(when, watch, right, cause)


def leaves(when: str, before: int, last_landed: list[str], buckets: Buckets) -> None:
    """Demand that each bucket left when the last of its gradients was there, and not later."""
    if before < len(buckets):
        raise WrongError(
            f"{when}: {before} of {len(buckets)} buckets left during backward, the others "
            "after it. A bucket must leave as soon as it has the last of its gradients."
        )
    for at, (name, bucket) in enumerate(zip(last_landed, buckets, strict=True)):
        if name not in bucket:
            raise WrongError(
                f"{when}: bucket {at} left when the gradient of {name} was there, which is in a "
                "later bucket. A bucket must leave as soon as it has the last of its gradients."
            )
