"""A composition of a grid, a schedule and options; and which of them to try, in which order.

First come the simplest: one thing at a time beside the plain step. So the first case that fails is
a small one, and its error says which thing is wrong. Then come random draws of several.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, combinations, product
from math import prod
from pathlib import Path
from typing import Any, NoReturn

AXES = ("tensor", "data", "pipeline", "context")
CHOICES = {
    "schedule": ("1f1b", "gpipe", "interleaved", "zb-h1"),
    "fsdp": ("", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"),
    "reduction": ("mean", "tokens"),
}
Supports = Mapping[str, Sequence[Any]]


SENTENCES = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text("utf-8"))


class ParityError(Exception):
    """A model, or its file, that can't be compared; says why and what to change."""


def say(kind: str, name: str, /, **values: Any) -> str:
    """Return a sentence of sentences.toml, with these values in it."""
    return " ".join(SENTENCES[kind][name].split()).format(**values)


def refuse(name: str, /, **values: Any) -> NoReturn:
    """Raise a ParityError with a sentence of `refused`."""
    raise ParityError(say("refused", name, **values))


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

    def settings(self) -> dict[str, Any]:
        """Return all settings, options among them, by name."""
        return {name: getattr(self, name) for name in NAMES} | dict(self.options)

    def changes(self) -> dict[str, Any]:
        """Return what differs from the default: for messages and for `--case`."""
        plain = Case().settings()
        changed = {name: x for name, x in self.settings().items() if x != plain.get(name)}
        return {name: x for name, x in changed.items() if x is not None}

    def __str__(self) -> str:
        shown = (f"{name} {x}" for name, x in self.changes().items() if x is not False)
        return ", ".join(shown) or "one rank"


NAMES = tuple(field.name for field in fields(Case) if field.name != "options")


def make_case(settings: Mapping[str, Any], supports: Supports) -> Case:
    """Return the case of these settings; one that isn't given has its first value.

    Raises:
        ParityError: a setting of `Case` has a value that doesn't exist.
    """
    values = {name: values[0] for name, values in supports.items()} | dict(settings)
    for name in (name for name in NAMES if name in values):
        value, known = values[name], CHOICES.get(name)
        if value in known if known else type(value) is int and value >= (name != "expert_tensor"):
            continue
        choices = ", ".join(map(repr, known)) if known else "a whole number from 1"
        refuse("value", name=name, value=value, choices=choices)
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

    Raises:
        ParityError: no case has so few ranks, or divides the rows.
    """
    dice = random.Random(seed)  # noqa: S311

    def fits(case: Case) -> bool:
        return case.ranks <= ranks and rows % (case.data * case.microbatches) == 0

    cases = [*_list_simple(supports, fits)]
    for _ in range(50 * count):
        drawn = {name: dice.choice([*values]) for name, values in supports.items()}
        cases.append(_settle(make_case(drawn, supports)))
    different = {repr(case): case for case in cases if fits(case)}
    if not different:
        refuse("no-case", ranks=ranks, rows=rows)
    return [*different.values()][:count]


def _list_simple(supports: Supports, fits: Callable[[Case], bool]) -> Iterator[Case]:
    """Yield, for each value, the case with the fewest changes that has it: up to three."""
    names = sorted(supports, key=lambda name: (*AXES, name).index(name))
    seen: set[tuple[str, str]] = set()
    for changed in chain.from_iterable(combinations(names, number) for number in range(4)):
        for values in product(*(supports[name][1:] for name in changed)):
            case = _settle(make_case(dict(zip(changed, values, strict=True)), supports))
            new = {(name, repr(value)) for name, value in case.settings().items()} - seen
            if new and fits(case):
                seen |= new
                yield case


def shrink(case: Case, supports: Supports) -> Iterator[Case]:
    """Yield cases with one thing less, to find out which things a failure needs."""
    settings, plain = case.settings(), make_case({}, supports).settings()
    for name, value in settings.items():
        if value != plain.get(name):
            smaller = {**settings, name: plain.get(name)}
            yield _settle(make_case(smaller, supports))


def _settle(case: Case) -> Case:
    """Take each setting away that lacks the axis, or the micro-batches, that it needs."""
    options, ranks = dict(case.options), case.tensor * case.context * case.data
    if options.get("sequence_parallel") and case.tensor == 1:
        options["sequence_parallel"] = False
    ordered = case.schedule != "interleaved" or case.microbatches % case.pipeline == 0
    deferred = case.schedule == "zb-h1" and case.fsdp
    divides = ranks % (case.expert * (case.expert_tensor or 1)) == 0
    return replace(
        case,
        schedule=case.schedule if case.pipeline > 1 and ordered and not deferred else "1f1b",
        fsdp=case.fsdp if case.data * case.context > 1 else "",
        expert=case.expert if divides else 1,
        expert_tensor=case.expert_tensor if divides else 0,
        options=tuple(options.items()),
    )
