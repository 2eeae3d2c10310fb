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

from shardlab.parity.case import AXES, Case, say
from shardlab.parity.preflight import Reference
from shardlab.parity.ranks import Pair, Placement, Trace

NEARLY_ZERO = 1e-6  # of the model's largest entry: a gradient that consists of rounding


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
        off[f"loss {step}"] = _relative(losses[step], right)
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
    return [total / count for total, count in zip(sums, over, strict=True)]


def find_wrong_shape(reference: Reference, traces: Sequence[Trace]) -> Finding | None:
    """Return a parameter that can't be compared, by its name or its shape; None if all can."""
    for rank, trace in enumerate(traces):
        for name, placement in trace.placements.items():
            whole = reference.start.get(name)
            if whole is None:
                what = f"rank {rank} has {name}, and one process has not"
                return Finding("shape", name, what, say("cause", "renamed"))
            if not placement.fits:
                shape = tuple(whole.shape)
                what = (
                    f"{name} has shape {placement.shape} on rank {rank} and {shape} in one process"
                )
                return Finding("shape", name, what, _explain_shape(placement, shape))
    missing = [n for n in reference.start if not any(n in trace.placements for trace in traces)]
    if not missing:
        return None
    what, cause = f"no rank has {missing[0]}", say("cause", "missing")
    return Finding("shape", missing[0], what, cause, others=len(missing) - 1)


def _explain_shape(placement: Placement, shape: tuple[int, ...]) -> str:
    dim, length = placement.mark or (0, 0)
    if placement.shape == shape and shape[dim : dim + 1] == (length,):
        return say("cause", "marked-whole", marked=dim, of=length)
    dims = enumerate(zip(placement.shape, shape, strict=False))
    cut = next((d for d, (local, whole) in dims if local != whole), min(dim, len(shape) - 1))
    marks = {"marked": dim, "of": length, "dim": cut, "length": shape[cut]}
    return say("cause", "marked" if placement.mark else "unmarked", **marks)


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
        return Finding("norm", "", what, say("cause", "norm"), off["norm 0"])
    wrong = [key for key, error in off.items() if not error <= 10 * tolerance]
    if not wrong:
        return None
    name, error = wrong[0].removeprefix("weight of "), off[wrong[0]]
    what = f"{wrong[0]} is off by {error:.1e} after {len(reference.losses)} steps"
    return Finding("weight", name, what, say("cause", "later"), error, len(wrong) - 1)


def _find_wrong_loss(
    reference: Reference, traces: Sequence[Trace], case: Case, off: Mapping[str, float],
    tolerance: float,
) -> Finding | None:  # fmt: skip
    right, error = reference.losses[0], off["loss 0"]
    for group in _groups(traces, "tensor"):
        local = [trace.losses[0] for trace in group if trace.losses]
        if local and max(local) - min(local) > tolerance * abs(right):
            shown = ", ".join(f"{x:.6g}" for x in local)
            what = (
                f"the tensor ranks compute different losses, {shown}, and one process {right:.6g}"
            )
            return Finding("loss", "", what, say("cause", "own-part"), _relative(local[0], right))
    if error <= tolerance:
        return None
    total = join_losses(traces, case, reference)[0]
    what, cause = f"the loss is {total:.6g}, and {right:.6g} in one process", _why_forward(case)
    if number := _multiple(total / right, case):
        what = f"the loss is {number[0]} that of one process ({total:.6g} and {right:.6g})"
        cause = say("cause", "scaled-loss", of=number[1])
    return Finding("loss", "", what, cause, error)


def _why_forward(case: Case) -> str:
    needs = ("context", "sequence_parallel", "tensor", "pipeline")
    return say("cause", next((name for name in needs if case.changes().get(name)), "plain"))


def _explain_gradient(name: str, traces: Sequence[Trace], case: Case) -> tuple[str, str]:
    """Return what is wrong with a gradient, and the cause."""
    ranks = [trace for trace in traces if name in trace.placements]
    expert, (local, right) = ranks[0].placements[name].expert, ranks[0].gradients[name]
    if right is None or local is None:
        frozen = "one process" if right is None else "the ranks"
        return f"{name} is frozen on {frozen} only", say("cause", "frozen")
    for axis in ("tensor", "pipeline", "context", "data"):
        if getattr(case, axis) > 1 and _adds_up(name, ranks, axis):
            what = f"the gradients of {name} on the {axis} ranks add up to that of one process"
            key = f"parts-{axis}" if axis in ("tensor", "pipeline") else "parts"
            return what, say("cause", key, axis=axis)
    replicas = {(trace.place["context"], trace.place["data"]) for trace in ranks}
    if len(replicas) < case.data * case.context and not expert:
        what = f"{name} is on some replicas only, and its gradient is off"
        return what, say("cause", "averaged-experts")
    ratio = float((local * right).sum() / right.square().sum().clamp_min(1e-300))
    if float((local - ratio * right).abs().max()) < 1e-6 * float(right.abs().max()):
        number, of = _multiple(ratio, case) or (f"{ratio:.2f} times", "a factor")
        what = f"the gradient of {name} is {number} that of one process"
        key = "scaled-expert" if expert else "summed-again" if ratio > 1 else "divided-again"
        return what, say("cause", key, of=of)
    cause = say("cause", "backward") if case.tensor > 1 else _why_forward(case)
    return f"the gradient of {name} is no multiple of one process's, and no part", cause


def _adds_up(name: str, ranks: Sequence[Trace], axis: str) -> bool:
    """Return whether an axis's gradients, which differ, add up to the right one."""
    for group in _groups(ranks, axis):
        pairs = [(x, y) for t in group if (x := t.gradients[name][0]) is not None
                 and (y := t.gradients[name][1]) is not None]  # fmt: skip
        if len(pairs) < 2:
            return False
        parts, (right, *others) = zip(*pairs, strict=True)
        if not all(torch.equal(right, other) for other in others):  # other slices
            return False
        stacked, small = torch.stack(parts), 1e-6 * float(right.abs().max())
        alike = float((stacked - stacked[0]).abs().max()) <= small  # one number times the right one
        if alike or float((stacked.sum(0) - right).abs().max()) > small:
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
