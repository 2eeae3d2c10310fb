"""Compare what the ranks left with one process, and say what is wrong.

All functions are of values, without processes. Four kinds of evidence name a cause: in which
quantity the difference appears first, whether the ranks' parts add up to the right one (and over
which axis), whether it is the right one times a number, and what the smallest failing case needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shardlab.parity.case import AXES, Case
from shardlab.parity.preflight import Reference
from shardlab.parity.ranks import Trace

NEARLY_ZERO = 1e-6  # of the model's largest entry: a gradient that consists of rounding


@dataclass(frozen=True)
class Finding:
    """What is wrong.

    Attributes:
        quantity: "shape", "loss", "gradient", "norm", "weight" or "error".
        name: the parameter, or "".
        error: the relative difference; infinite for what can't be compared.
        what: what was seen, in a sentence.
        cause: the likely cause, and what to change.
        others: further parameters that are off.
    """

    quantity: str
    name: str
    error: float
    what: str
    cause: str
    others: int = 0


def compare(reference: Reference, traces: Sequence[Trace], case: Case) -> dict[str, float]:
    """Return every relative difference, the largest of all ranks, by the quantity's name."""
    off: dict[str, float] = {}
    losses = join_losses(traces, case, reference)
    for step, right in enumerate(reference.losses):
        off[f"loss {step}"] = _relative(losses[step], right) if losses else float("inf")
        norms = [_relative(trace.norms[step], reference.norms[step]) for trace in traces]
        off[f"norm {step}"] = max(norms)
    for kind, rights in (("gradient", reference.gradients), ("weight", reference.weights)):
        largest = max((float(x.abs().max()) for x in rights.values() if x is not None), default=0.0)
        for name, whole in rights.items():
            ranks = [t for t in traces if name in t.cuts]
            key = f"{kind} of {name}"
            off[key] = max((_off(t, kind, name, whole, largest) for t in ranks), default=_MISSING)
    return off


_MISSING = float("inf")


def join_losses(traces: Sequence[Trace], case: Case, reference: Reference) -> list[float]:
    """Return each step's loss of the whole batch, from the last stage's ranks."""
    last = [t for t in traces if t.losses and t.place["tensor"] == 0]
    if not last:
        return []
    sums = [sum(column) for column in zip(*(trace.losses for trace in last), strict=True)]
    if case.reduction == "mean":
        return [total / len(last) for total in sums]
    return [total / count for total, count in zip(sums, reference.counted, strict=True)]


def find_fault(
    reference: Reference, traces: Sequence[Trace], case: Case, tolerance: float
) -> Finding | None:
    """Return what is wrong, or None if nothing is off by more than `tolerance`."""
    return (
        _find_wrong_shape(reference, traces)
        or _find_wrong_loss(reference, traces, case, tolerance)
        or _find_wrong_gradient(reference, traces, case, tolerance)
        or _find_wrong_rest(reference, traces, case, tolerance)
    )


# ---------------------------------------------------------------------- shapes and names


def _find_wrong_shape(reference: Reference, traces: Sequence[Trace]) -> Finding | None:
    inf = float("inf")
    for rank, trace in enumerate(traces):
        for name, cut in trace.cuts.items():
            whole = reference.start.get(name)
            if whole is None:
                what = f"rank {rank} has {name}, and one process has not"
                cause = "a stage must give its parameters the names of the whole model"
                return Finding("shape", name, inf, what, f"{cause}: layers.3, not layers.0 again")
            expected = tuple(cut.local(whole).shape)
            if expected != cut.shape:
                axis = next((d for d, n in enumerate(whole.shape) if d < len(cut.shape)
                             and n != cut.shape[d]), 0)  # fmt: skip
                what = (
                    f"{name} has shape {cut.shape} on rank {rank} and {tuple(whole.shape)} in one "
                    "process"
                )
                cause = (
                    "no mark says how it is cut" if cut.dim is None else "its mark says otherwise"
                )
                fix = f"sharding.mark(p, Sharding(axis, {axis}, {whole.shape[axis]}, padded))"
                return Finding("shape", name, inf, what, f"an unmarked weight: {cause}; {fix}")
    missing = [n for n in reference.start if not any(n in trace.cuts for trace in traces)]
    if missing:
        what = f"no rank has {missing[0]}"
        cause = "the stages do not hold all of the model, or name it otherwise"
        return Finding("shape", missing[0], inf, what, cause, len(missing) - 1)
    return None


# ---------------------------------------------------------------------- the forward


def _find_wrong_loss(
    reference: Reference, traces: Sequence[Trace], case: Case, tolerance: float
) -> Finding | None:
    losses = [trace.losses[0] for trace in traces if trace.losses]
    right = reference.losses[0]
    if not losses:
        return Finding("loss", "", float("inf"), "no rank has a loss", "no stage is the last one")
    for group in _groups(traces, "tensor"):
        local = [trace.losses[0] for trace in group if trace.losses]
        if local and max(local) - min(local) > tolerance * abs(right):
            shown = ", ".join(f"{x:.6g}" for x in local)
            return Finding(
                "loss", "", _relative(local[0], right),
                f"the tensor ranks compute different losses, {shown}, and one process {right:.6g}",
                "a loss or a layer uses this rank's part as if it were the whole: a mean over the "
                "rank's own words (label smoothing, z-loss) or features; sum it over the axis",
            )  # fmt: skip
    total = join_losses(traces, case, reference)[0]
    if _relative(total, right) <= tolerance:
        return None
    what = f"the loss is {total:.6g}, and {right:.6g} in one process"
    if number := _multiple(total / right, case):
        what = f"the loss is {number[0]} that of one process ({total:.6g} and {right:.6g})"
        cause = f"double scaling: the loss is scaled by {number[1]} by the model, and by the step"
        return Finding("loss", "", _relative(total, right), what, f"{cause}; scale it once")
    return Finding("loss", "", _relative(total, right), what, _why_forward(case))


def _why_forward(case: Case) -> str:
    """Return why a forward differs, from what the case needs."""
    changes = case.changes()
    if "context" in changes:
        return (
            "wrong positions or a wrong mask under context parallelism: rank r has the zig-zag "
            "share; use context.positions(tokens) and context.attend"
        )
    if changes.get("sequence_parallel"):
        return (
            "the tensor axis alone is right, and its ranks now have other rows of the sequence: "
            "positions (rope, a learned table) or a mask count from 0 on each rank; begin at "
            "tensor.rank times the rank's rows, or rotate after the gather"
        )
    if "tensor" in changes:
        return (
            "a sum over the tensor axis is missing, or something is added on each rank before it "
            "(a row-parallel bias is added once, after the reduction)"
        )
    if "pipeline" in changes:
        return "the stages do not compose to the model: blocks, their numbers or their order differ"
    return (
        "a mean of means: micro-batches or ranks count differently many targets, and each divides "
        'by its own; return sums, with reduction="tokens"'
    )


# ---------------------------------------------------------------------- the gradients


def _find_wrong_gradient(
    reference: Reference, traces: Sequence[Trace], case: Case, tolerance: float
) -> Finding | None:
    wholes = reference.gradients
    largest = max((float(g.abs().max()) for g in wholes.values() if g is not None), default=0.0)
    names = [
        name
        for name, whole in reversed(wholes.items())  # backward's order: the fault's own first
        if any(
            _off(t, "gradient", name, whole, largest) > tolerance for t in traces if name in t.cuts
        )
    ]
    if not names:
        return None
    # A replica that lacks a sum differs between ranks; name it before what it has spoilt.
    name = names[0]
    error = max(_off(t, "gradient", name, wholes[name], largest) for t in traces if name in t.cuts)
    what, cause = _explain(name, wholes[name], traces, case)
    return Finding("gradient", name, error, what, cause, len(names) - 1)


def _explain(
    name: str, whole: Tensor | None, traces: Sequence[Trace], case: Case
) -> tuple[str, str]:
    held = [trace for trace in traces if name in trace.cuts]
    local = held[0].gradients[name]
    if whole is None or local is None:
        frozen = "one process" if whole is None else "the ranks"
        return f"{name} is frozen on {frozen} only", "set requires_grad alike in every build"
    expert = any(trace.cuts[name].expert for trace in held)
    whole_places = (
        len({(t.place["context"], t.place["data"]) for t in held}) == case.data * case.context
    )
    for axis in ("tensor", "pipeline", "context", "data"):
        if getattr(case, axis) > 1 and _adds_up(name, whole, held, axis):
            what = f"the gradients of {name} on the {axis} ranks add up to that of one process"
            return what, _why_partial(axis, cut=held[0].cuts[name].dim is not None)
    right = held[0].cuts[name].local(whole)
    ratio = float((local * right).sum() / right.square().sum().clamp_min(1e-300))
    scaled = float((local - ratio * right).abs().max()) < 1e-6 * float(right.abs().max())
    if not whole_places and not expert:
        return f"{name} is on some replicas only, and its gradient is off", (
            "an expert's gradient is averaged with other experts': mark which ranks hold copies, "
            "sharding.mark_copies(p, axes.copies)"
        )
    if scaled:
        number = _multiple(ratio, case) or (f"{ratio:.2f} times", "a factor")
        what = f"the gradient of {name} is {number[0]} that of one process"
        if expert:
            cause = "an expert's gradient is summed or divided by the expert ranks once too often"
        elif ratio > 1:
            cause = (
                f"it is counted once on each of {number[1]}: a sum over ranks whose gradients are "
                "whole already; sum it once, or not at all"
            )
        else:
            cause = f"double scaling: it is divided by {number[1]} twice, or a sum is missing"
        return what, cause
    if case.changes().get("tensor", 1) > 1:
        return f"the gradient of {name} is no multiple of one process's, and no part", (
            "its backward crosses the tensor axis wrongly: an input of a column-parallel product "
            "needs copy_to (f), an output of a row-parallel product reduce_from (g)"
        )
    return f"the gradient of {name} is no multiple of one process's, and no part", _why_forward(
        case
    )


def _why_partial(axis: str, *, cut: bool) -> str:
    if axis == "tensor":
        return (
            "a replicated parameter whose gradient is partial: each tensor rank has seen a part of "
            "the rows or of the features; mark it (partial_gradients.mark(p)), or cross the axis "
            "with copy_to before the column-parallel product"
        )
    if axis == "pipeline":
        return (
            "tied ends: two stages hold copies of it, and each has a part of its gradient; give "
            "model.tied_weight and model.first, so that the step sums them"
        )
    return f"the {axis} ranks' gradients are not reduced; give StepGradients this parameter"


def _adds_up(name: str, whole: Tensor, held: Sequence[Trace], axis: str) -> bool:
    """Return whether the gradients on an axis, each of which is wrong, add up to the right one."""
    for group in _groups(held, axis):
        parts = [g for trace in group if (g := trace.gradients[name]) is not None]
        right = group[0].cuts[name].local(whole)
        alike = len(parts) > 1 and all(part.shape == right.shape for part in parts)
        same_slice = len({trace.cuts[name] for trace in group}) == 1
        if not alike or not same_slice:
            return False
        error = float((torch.stack(parts).sum(0) - right).abs().max())
        if error > 1e-6 * float(right.abs().max()):
            return False
    return True


# ---------------------------------------------------------------------- what is left


def _find_wrong_rest(
    reference: Reference, traces: Sequence[Trace], case: Case, tolerance: float
) -> Finding | None:
    off = compare(reference, traces, case)
    if off["norm 0"] > tolerance:
        what = f"the norm is {traces[0].norms[0]:.6g}, and {reference.norms[0]:.6g} in one process"
        cause = (
            "every gradient is right, so some parameter is counted on several ranks or on none: a "
            "replicated one with a Sharding mark, or a tied copy that first doesn't name"
        )
        return Finding("norm", "", off["norm 0"], what, cause)
    wrong = [key for key, error in off.items() if not error <= 10 * tolerance]
    if not wrong:
        return None
    name = wrong[0].removeprefix("weight of ")
    what = f"{wrong[0]} is off by {off[wrong[0]]:.1e} after {len(reference.losses)} steps"
    cause = (
        "the first step's gradients are right, so later steps see something else: state, or data"
    )
    return Finding("weight", name, off[wrong[0]], what, cause, len(wrong) - 1)


def _off(trace: Trace, kind: str, name: str, whole: Tensor | None, largest: float) -> float:
    """Return how far one rank's gradient or weight is off, relative to its largest entry."""
    local = (trace.gradients if kind == "gradient" else trace.weights).get(name)
    if local is None or whole is None:
        return 0.0 if local is None and (whole is None or kind == "weight") else float("inf")
    scale = max(float(whole.abs().max()), NEARLY_ZERO * largest, 1e-300)
    right = trace.cuts[name].local(whole)
    return float((local - right).abs().max()) / scale if right.numel() else 0.0


def _groups(traces: Iterable[Trace], axis: str) -> list[list[Trace]]:
    """Return the ranks that differ in their place on one axis only."""
    groups: dict[tuple[int, ...], list[Trace]] = {}
    for trace in traces:
        place: Mapping[str, int] = trace.place
        groups.setdefault(tuple(place[name] for name in AXES if name != axis), []).append(trace)
    return list(groups.values())


def _multiple(ratio: float, case: Case) -> tuple[str, str] | None:
    """Return a ratio in words, and what it is a multiple of: an axis's ranks, or micro-batches."""
    sizes = {f"the {n} {axis} ranks": n for axis in AXES if (n := getattr(case, axis)) > 1}
    sizes |= {f"the {case.microbatches} micro-batches": case.microbatches}
    sizes |= {f"the {case.expert} expert ranks": case.expert}
    for what, size in sizes.items():
        for number in (size, 1 / size, size**2, 1 / size**2):
            if size > 1 and abs(ratio / number - 1) < 1e-6:
                return f"{number:.2f} times", what
    return None


def _relative(actual: float, right: float) -> float:
    return abs(actual - right) / max(abs(right), 1e-300)
