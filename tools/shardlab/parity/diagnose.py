"""Compare what the ranks left with one process, and say what is wrong.

All functions are of values, without processes. Four kinds of evidence name a cause: in which
quantity the difference appears first, whether the ranks' parts add up to the right one (and over
which axis), whether it is the right one times a number, and what the smallest failing case needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from shardlab.parity.case import AXES, Case
from shardlab.parity.preflight import Reference
from shardlab.parity.ranks import Pair, Trace

NEARLY_ZERO = 1e-6  # of the model's largest entry: a gradient that consists of rounding
# Why a forward differs, by what the smallest failing case needs; the first that holds is named.
FORWARD = {
    "context": (
        "wrong positions or a wrong mask under context parallelism: rank r has the zig-zag share; "
        "use context.positions(tokens) and context.attend"
    ),
    "sequence_parallel": (
        "the tensor axis alone is right, and its ranks now have other rows of the sequence: "
        "positions (rope, a learned table) or a mask count from 0 on each rank; begin at "
        "tensor.rank times the rank's rows, or rotate after the gather"
    ),
    "tensor": (
        "a sum over the tensor axis is missing, or something is added on each rank before it (a "
        "row-parallel bias is added once, after the reduction)"
    ),
    "pipeline": "the stages do not compose to the model: blocks, their numbers or order differ",
    "": (
        "a mean of means: micro-batches or ranks count differently many targets, and each divides "
        'by its own; return sums, with reduction="tokens"'
    ),
}
# Why the gradients on an axis, each of which is wrong, add up to the right one.
PARTIAL = {
    "tensor": (
        "a replicated parameter whose gradient is partial: each tensor rank has seen a part of "
        "the rows or of the features; mark it (partial_gradients.mark(p)), or cross the axis "
        "with copy_to before the column-parallel product"
    ),
    "pipeline": (
        "tied ends: two stages hold copies of it, and each has a part of its gradient; give "
        "model.tied_weight and model.first, so that the step sums them"
    ),
    "context": "the context ranks' gradients are not reduced; give StepGradients this parameter",
    "data": "the data ranks' gradients are not reduced; give StepGradients this parameter",
}


@dataclass(frozen=True)
class Finding:
    """What is wrong.

    Attributes:
        quantity: "shape", "loss", "gradient", "norm", "weight" or "error".
        name: the parameter, or "".
        what: what was seen, in a sentence.
        cause: the likely cause, and what to change.
        error: the relative difference; infinite for what can't be compared.
        others: further parameters that are off.
    """

    quantity: str
    name: str
    what: str
    cause: str
    error: float = inf
    others: int = 0


def compare(reference: Reference, traces: Sequence[Trace], case: Case) -> dict[str, float]:
    """Return every relative difference, the largest of all ranks, by the quantity's name."""
    off: dict[str, float] = {}
    losses = join_losses(traces, case, reference)
    for step, right in enumerate(reference.losses):
        off[f"loss {step}"] = _relative(losses[step], right) if losses else inf
        norms = [_relative(trace.norms[step], reference.norms[step]) for trace in traces]
        off[f"norm {step}"] = max(norms)
    for kind in ("gradient", "weight"):
        wholes: Mapping[str, Tensor | None] = getattr(reference, f"{kind}s")
        largest = max((float(x.abs().max()) for x in wholes.values() if x is not None), default=0.0)
        for name, whole in wholes.items():
            pairs = [p for t in traces if (p := getattr(t, f"{kind}s").get(name))]
            scale = largest * NEARLY_ZERO
            scale = max(scale if whole is None else float(whole.abs().max()), scale, 1e-300)
            off[f"{kind} of {name}"] = max((_distance(p) / scale for p in pairs), default=inf)
    return off


def join_losses(traces: Sequence[Trace], case: Case, reference: Reference) -> list[float]:
    """Return each step's loss of the whole batch, from the last stage's ranks."""
    last = [t for t in traces if t.losses and t.place["tensor"] == 0]
    sums = [sum(column) for column in zip(*(trace.losses for trace in last), strict=True)]
    over = [len(last)] * len(sums) if case.reduction == "mean" else reference.counted
    return [total / count for total, count in zip(sums, over, strict=bool(sums))]


def find_wrong_shape(reference: Reference, traces: Sequence[Trace]) -> Finding | None:
    """Return a parameter that can't be compared, by its name or its shape; None if all can."""
    for rank, trace in enumerate(traces):
        for name, held in trace.held.items():
            whole = reference.start.get(name)
            if whole is None:
                what = f"rank {rank} has {name}, and one process has not"
                cause = "a stage must give its parameters the names of the whole model"
                return Finding("shape", name, what, f"{cause}: layers.3, not layers.0 again")
            if held.fits:
                continue
            shape = tuple(whole.shape)
            what = f"{name} has shape {held.shape} on rank {rank} and {shape} in one process"
            dim, length = held.mark or (0, 0)
            cause = "an unmarked weight: no mark says how it is cut"
            if held.mark:
                cause = f"a wrong mark: it says that the axis cuts dim {dim} of length {length}"
            if held.shape == shape and shape[dim : dim + 1] == (length,):
                fix = "this rank has all of it: take sharding.mark away, or cut it"
            else:
                dims = enumerate(zip(held.shape, shape, strict=False))
                dim = next((d for d, (local, n) in dims if local != n), min(dim, len(shape) - 1))
                fix = f"sharding.mark(p, Sharding(axis, {dim}, {shape[dim]}, padded))"
            return Finding("shape", name, what, f"{cause}; {fix}")
    missing = [n for n in reference.start if not any(n in trace.held for trace in traces)]
    if missing:
        what = f"no rank has {missing[0]}"
        cause = "the stages do not hold all of the model, or name it otherwise"
        return Finding("shape", missing[0], what, cause, others=len(missing) - 1)
    return None


def find_fault(
    reference: Reference, traces: Sequence[Trace], case: Case, off: Mapping[str, float],
    tolerance: float,
) -> Finding | None:  # fmt: skip
    """Return what is wrong, or None if nothing of `compare` is off by more than `tolerance`."""
    if found := _find_wrong_loss(reference, traces, case, off, tolerance):
        return found
    kind = "gradient of "
    names = [name for name in reference.gradients if not off[kind + name] <= tolerance]
    if names:
        name = names[-1]  # backward's order: the fault's own first
        what, cause = _explain_gradient(name, traces, case)
        return Finding("gradient", name, what, cause, off[kind + name], len(names) - 1)
    if not off["norm 0"] <= tolerance:
        what = f"the norm is {traces[0].norms[0]:.6g}, and {reference.norms[0]:.6g} in one process"
        cause = (
            "every gradient is right, so some parameter is counted on several ranks or on none: a "
            "replicated one with a Sharding mark, or a tied copy that first doesn't name"
        )
        return Finding("norm", "", what, cause, off["norm 0"])
    wrong = [key for key, error in off.items() if not error <= 10 * tolerance]
    if not wrong:
        return None
    what = f"{wrong[0]} is off by {off[wrong[0]]:.1e} after {len(reference.losses)} steps"
    cause = (
        "the first step's gradients are right, so later steps see something else: state, or data"
    )
    name = wrong[0].removeprefix("weight of ")
    return Finding("weight", name, what, cause, off[wrong[0]], len(wrong) - 1)


def _find_wrong_loss(
    reference: Reference, traces: Sequence[Trace], case: Case, off: Mapping[str, float],
    tolerance: float,
) -> Finding | None:  # fmt: skip
    right, error = reference.losses[0], off["loss 0"]
    totals = join_losses(traces, case, reference)
    if not totals:
        return Finding("loss", "", "no rank has a loss", "no stage is the last one")
    for group in _groups(traces, "tensor"):
        local = [trace.losses[0] for trace in group if trace.losses]
        if local and max(local) - min(local) > tolerance * abs(right):
            shown = ", ".join(f"{x:.6g}" for x in local)
            return Finding(
                "loss", "",
                f"the tensor ranks compute different losses, {shown}, and one process {right:.6g}",
                "a loss or a layer uses this rank's part as if it were the whole: a mean over the "
                "rank's own words (label smoothing, z-loss) or features; sum it over the axis",
                _relative(local[0], right),
            )  # fmt: skip
    if error <= tolerance:
        return None
    what, cause = f"the loss is {totals[0]:.6g}, and {right:.6g} in one process", _why_forward(case)
    if number := _multiple(totals[0] / right, case):
        what = f"the loss is {number[0]} that of one process ({totals[0]:.6g} and {right:.6g})"
        cause = f"double scaling: the loss is scaled by {number[1]} by the model, and by the step"
        cause += "; scale it once"
    return Finding("loss", "", what, cause, error)


def _why_forward(case: Case) -> str:
    changes = {"": True, **case.changes()}
    return next(cause for setting, cause in FORWARD.items() if changes.get(setting))


def _explain_gradient(name: str, traces: Sequence[Trace], case: Case) -> tuple[str, str]:
    """Return what is wrong with a gradient, and the cause."""
    ranks = [trace for trace in traces if name in trace.held]
    held, (local, right) = ranks[0].held[name], ranks[0].gradients[name]
    if right is None or local is None:
        frozen = "one process" if right is None else "the ranks"
        return f"{name} is frozen on {frozen} only", "set requires_grad alike in every build"
    for axis, cause in PARTIAL.items():
        if getattr(case, axis) > 1 and _adds_up(name, ranks, axis):
            return (
                f"the gradients of {name} on the {axis} ranks add up to that of one process",
                cause,
            )
    replicas = {(trace.place["context"], trace.place["data"]) for trace in ranks}
    if len(replicas) < case.data * case.context and not held.expert:
        return f"{name} is on some replicas only, and its gradient is off", (
            "an expert's gradient is averaged with other experts': mark which ranks hold copies, "
            "sharding.mark_copies(p, axes.copies)"
        )
    ratio = float((local * right).sum() / right.square().sum().clamp_min(1e-300))
    if float((local - ratio * right).abs().max()) < 1e-6 * float(right.abs().max()):
        number, of = _multiple(ratio, case) or (f"{ratio:.2f} times", "a factor")
        what = f"the gradient of {name} is {number} that of one process"
        if held.expert:
            cause = "an expert's gradient is summed or divided by the expert ranks once too often"
        elif ratio > 1:
            cause = (
                f"it is counted once on each of {of}: a sum over ranks whose gradients are whole "
                "already; sum it once, or not at all"
            )
        else:
            cause = f"double scaling: it is divided by {of} twice, or a sum is missing"
        return what, cause
    return f"the gradient of {name} is no multiple of one process's, and no part", (
        "its backward crosses the tensor axis wrongly: an input of a column-parallel product needs "
        "copy_to (f), an output of a row-parallel product reduce_from (g)"
        if case.tensor > 1
        else _why_forward(case)
    )


def _adds_up(name: str, ranks: Sequence[Trace], axis: str) -> bool:
    """Return whether the gradients on an axis, each of which is wrong, add up to the right one."""
    for group in _groups(ranks, axis):
        pairs = [(x, y) for t in group if (x := t.gradients[name][0]) is not None
                 and (y := t.gradients[name][1]) is not None]  # fmt: skip
        if len(pairs) < 2:
            return False
        parts, (right, *others) = zip(*pairs, strict=True)
        if not all(torch.equal(right, other) for other in others):  # other slices
            return False
        error = float((torch.stack(parts).sum(0) - right).abs().max())
        if error > 1e-6 * float(right.abs().max()):
            return False
    return True


def _distance(pair: Pair) -> float:
    """Return the largest difference between a rank's gradient or weight and the right one."""
    actual, right = pair
    if actual is None or right is None:
        return 0.0 if actual is right else inf
    return float((actual - right).abs().max()) if right.numel() else 0.0


def _groups(traces: Iterable[Trace], axis: str) -> list[list[Trace]]:
    """Return the ranks that differ in their place on one axis only."""
    groups: dict[tuple[int, ...], list[Trace]] = {}
    for trace in traces:
        place = tuple(trace.place[name] for name in AXES if name != axis)
        groups.setdefault(place, []).append(trace)
    return list(groups.values())


def _multiple(ratio: float, case: Case) -> tuple[str, str] | None:
    """Return a ratio in words, and what it is a multiple of: an axis's ranks, or micro-batches."""
    sizes = {f"the {getattr(case, axis)} {axis} ranks": getattr(case, axis) for axis in AXES}
    sizes |= {f"the {case.microbatches} micro-batches": case.microbatches}
    sizes |= {f"the {case.expert} expert ranks": case.expert}
    for what, size in sizes.items():
        for number in (size, 1 / size, size**2, 1 / size**2):
            if size > 1 and abs(ratio / number - 1) < 1e-6:
                return f"{number:.2f} times", what
    return None


def _relative(actual: float, right: float) -> float:
    return abs(actual - right) / max(abs(right), 1e-300)
