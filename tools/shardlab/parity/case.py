"""A composition of a grid, a schedule and options; and which of them to try, in which order.

First come the simplest: one thing at a time beside the plain step. So the first case that fails is
a small one, and its error says which thing is wrong. Then come random draws of several.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import prod
from typing import Any

AXES = ("tensor", "context", "pipeline", "data")
Supports = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Case:
    """One way to take the steps; by default, one rank and nothing else.

    Attributes:
        tensor, context, pipeline, data: ranks along each axis.
        expert, expert_tensor: of experts; see `Grid`. `expert_tensor` 0 is as many as `tensor`.
        microbatches: of a data rank's share.
        schedule: of the pipeline.
        fsdp: the sharding strategy's name; "" for replicas.
        reduction: "mean", or "tokens" for losses that are sums over counted targets.
        options: what `build` is given besides, by name.
    """

    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    expert_tensor: int = 0
    microbatches: int = 1
    schedule: str = "1f1b"
    fsdp: str = ""
    reduction: str = "mean"
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return prod(getattr(self, axis) for axis in AXES)

    @property
    def pieces(self) -> int:
        """Pieces of the model: two a stage under the interleaved schedule."""
        return self.pipeline * (2 if self.schedule == "interleaved" else 1)

    def changes(self) -> dict[str, Any]:
        """Return what differs from the default: for messages and for `--case`."""
        settings = asdict(self) | {"options": None} | dict(self.options)
        default = asdict(Case())
        return {name: x for name, x in settings.items() if x is not None and x != default.get(name)}

    def __str__(self) -> str:
        shown = (f"{name} {x}" for name, x in self.changes().items() if x not in (False, None))
        return ", ".join(shown) or "one rank"


NAMES = {field.name for field in fields(Case)} - {"options"}


def make_case(settings: Mapping[str, Any], supports: Supports) -> Case:
    """Return the case of these settings; one that isn't given has its first value."""
    values = {name: values[0] for name, values in supports.items()} | dict(settings)
    options = tuple((name, x) for name, x in values.items() if name not in NAMES)
    return Case(**{name: x for name, x in values.items() if name in NAMES}, options=options)


def list_cases(supports: Supports, *, count: int, ranks: int, rows: int, seed: int) -> list[Case]:
    """Return up to `count` different cases, the simplest first.

    Args:
        supports: the values that the model says it supports, by name.
        count: the most cases.
        ranks: the most ranks.
        rows: sequences of a batch, which data ranks and micro-batches divide.
        seed: of the draws.
    """
    dice = random.Random(seed)  # noqa: S311
    candidates = _singles(supports)
    for _ in range(50 * count):
        drawn = {name: dice.choice([*values]) for name, values in supports.items()}
        candidates.append(_settle(make_case(drawn, supports), supports, complete=False))
    fits = (c for c in candidates if c.ranks <= ranks and rows % (c.data * c.microbatches) == 0)
    return [*dict.fromkeys(fits)][:count]


def shrink(case: Case, supports: Supports) -> Iterator[Case]:
    """Yield cases with one thing less, to find out which things a failure needs."""
    plain = make_case({}, supports)
    for name in [*NAMES, *(name for name, _ in case.options)]:
        settings = asdict(case) | dict(case.options)
        default = dict(plain.options).get(name, getattr(plain, name, None))
        if settings[name] != default:
            settings = {k: x for k, x in settings.items() if k != "options"} | {name: default}
            yield _settle(make_case(settings, supports), supports, complete=False)


def _singles(supports: Supports) -> list[Case]:
    """Return the cases with one thing each, and what that thing needs."""
    cases = [make_case({}, supports)]
    for name in sorted(supports, key=lambda name: name not in AXES):
        first = make_case({}, supports)
        for value in supports[name]:
            case = _settle(make_case({name: value}, supports), supports, complete=True)
            cases += [case] if case != first else []
    return list(dict.fromkeys(cases))


def _settle(case: Case, supports: Supports, *, complete: bool) -> Case:
    """Give each setting the axis that it needs, or take the setting away."""

    def several(axis: str) -> dict[str, Any]:
        return {axis: next((n for n in supports.get(axis, ()) if n > 1), 1)} if complete else {}

    options = dict(case.options)
    if options.get("sequence_parallel") and case.tensor == 1:
        case = replace(case, **several("tensor"))
        options["sequence_parallel"] = options["sequence_parallel"] and case.tensor > 1
    if case.schedule != "1f1b" and case.pipeline == 1:
        case = replace(case, **several("pipeline"))
    if case.schedule == "interleaved" and case.microbatches % case.pipeline:
        case = replace(case, microbatches=case.pipeline if complete else case.microbatches)
    if case.fsdp and case.data * case.context == 1:
        case = replace(case, **several("data"))
    if case.expert > 1 and case.tensor * case.context * case.data % case.expert:
        case = replace(case, **several("data"))
    ordered = case.schedule != "interleaved" or case.microbatches % case.pipeline == 0
    held = case.tensor * case.context * case.data % (case.expert * (case.expert_tensor or 1)) == 0
    deferred = case.schedule == "zb-h1" and case.fsdp
    return replace(
        case,
        schedule=case.schedule if case.pipeline > 1 and ordered and not deferred else "1f1b",
        fsdp=case.fsdp if case.data * case.context > 1 else "",
        expert=case.expert if held else 1,
        expert_tensor=case.expert_tensor if held else 0,
        options=tuple(options.items()),
    )
