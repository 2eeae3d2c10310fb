"""What a metric is of, in fields; and its id, which is made of them here and nowhere else.

A note quotes a metric by its id, so an id is for ever; whoever selects metrics does it by field.
`FORMS` is the whole grammar: each section's ids, the fields that stand in them and in which order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec


class Name(msgspec.Struct, frozen=True):
    """What a metric is of; what doesn't apply is empty.

    Attributes:
        topic: "collective", "fit", "tp", "fsdp", "pipeline", "gpu", "count", "timeline" or
            "kernels".
        what: "step", "speedup", "share" … of it is told.
        of: which part of a step, which statement of a count.
        code: whose: "shardlab", "megatron-core", "torch-ddp" …; in a ratio
        over: whose it is divided by.
        link: what carried the messages: "gloo", "nccl", "shared-memory" …
        operation: "all_reduce" …
        mode: of a call: "blocking", "back-to-back", "enqueued"; of products: "graphed".
        ranks: that took part, where the id says it.
        size: bytes of the tensor.
        hidden: the model's hidden size.
        schedule, stages, microbatches: a pipeline's.
        dtype: of a product's matrices.
        card: whose memory it must fit.
        case, row: of the kernels beside other libraries (`sections/kernels.toml`).
    """

    topic: str = ""
    what: str = ""
    of: str = ""
    code: str = ""
    over: str = ""
    link: str = ""
    operation: str = ""
    mode: str = ""
    ranks: int = 0
    size: int = 0
    hidden: int = 0
    schedule: str = ""
    stages: int = 0
    microbatches: int = 0
    dtype: str = ""
    card: str = ""
    case: str = ""
    row: str = ""

    @property
    def id(self) -> str:
        """The metric's id.

        Raises:
            ValueError: no form holds just these fields.
        """
        return _id(self)

    def but(self, **fields: str | int) -> Name:
        """Return the name with other fields."""
        return msgspec.structs.replace(self, **fields)

    def remaining_fields(self, wanted: Wanted) -> str:
        """Return what the id says besides the fields that are wanted: "128 shardlab gloo"."""
        form = next(form for form in FORMS if form.holds(self))
        values = (getattr(self, field) for field in form.fields if field not in wanted)
        return " ".join(str(value) for value in values if value)

    def fits(self, wanted: Wanted) -> bool:
        """Tell whether each field is the one that is wanted, or one of them."""
        return all(
            getattr(self, field) in (value if isinstance(value, list | tuple) else (value,))
            for field, value in wanted.items()
        )


Wanted = Mapping[str, str | int | tuple[str | int, ...] | list[str | int]]
FIELDS: Mapping[str, Any] = dict(zip(Name.__struct_fields__, Name.__struct_defaults__, strict=True))
_SIZES = ("size", "hidden", "microbatches", "row")
_FIELD = re.compile(r"\{(\w+)(?::([^}]+))?\}")
_OPTION = re.compile(r"(\[[^]]*\])")


class Form:
    """One form of ids: "{field}", "{field:one|other}", and in brackets what may be left out."""

    def __init__(self, template: str) -> None:
        self.topic = template.partition(".")[0]
        self.fields = _names(template)  # in the order of the id
        self._pieces = _OPTION.split(template)
        self._pattern = re.compile("".join(map(_pattern, self._pieces)))

    def read(self, text: str) -> Name | None:
        """Return what an id of this form is of."""
        match = self._pattern.fullmatch(text)
        if not match:
            return None
        fields = {field: value for field, value in match.groupdict().items() if value is not None}
        return Name(
            topic=self.topic,
            **{field: type(FIELDS[field])(value) for field, value in fields.items()},
        )

    def holds(self, name: Name) -> bool:
        """Tell whether a name has this form's fields, and no others: its id says all of it."""
        return name.topic == self.topic and self.read(self.written(name)) == name

    def written(self, name: Name, instead: Mapping[str, str] | None = None) -> str:
        """Return the id; `instead` of some fields' values, others."""
        fields = msgspec.structs.asdict(name) | dict(instead or {})
        pieces = (
            piece.strip("[]")
            for piece in self._pieces
            if not piece.startswith("[") or any(getattr(name, field) for field in _names(piece))
        )
        return "".join(_FIELD.sub(lambda match: str(fields[match[1]]), piece) for piece in pieces)


def _names(template: str) -> list[str]:
    return [field for field, _ in _FIELD.findall(template)]


def _pattern(piece: str) -> str:
    """Return the regular expression of a piece, which in brackets may be left out."""

    def group(match: re.Match[str]) -> str:
        field, words = match.groups()
        free = r"[1-9]\d*" if isinstance(FIELDS[field], int) else r"[\w-]+"
        return f"(?P<{field}>{words or free})"

    # All points are the id's own but the one that stands for any character.
    pattern = _FIELD.sub(group, re.sub(r"\.(?![+}])", r"\.", piece.strip("[]")))
    return f"(?:{pattern})?" if piece.startswith("[") else pattern


_RANKS = "[.tp{ranks}]"  # two where it isn't said
FORMS = tuple(map(Form, (
    "collective.{link}.{operation}.n{ranks}.{size}.{mode}",
    "fit.{link}.{operation}.n{ranks}.{what}",
    "tp.h{hidden}.{what:ratio}.{code}.{over}.{link}" + _RANKS,
    "tp.h{hidden}.{what:part|share|sweep}.{of}.{code}.{link}" + _RANKS,
    "tp.h{hidden}.{what:step}.{code}.{of:one|one-all-cores}" + _RANKS,
    "tp.h{hidden}.{what:speedup-of-threads}.{code}" + _RANKS,
    "tp.h{hidden}.{what}.{code}.{link}" + _RANKS,
    "tp.{what:crossover}.{code}.{link}[.{of:exists}]" + _RANKS,
    "fsdp.h{hidden}.{what:ratio}.{code}.{over}.{link}",
    "fsdp.h{hidden}.{what:sweep}.{of}.{code}.{link}",
    "fsdp.h{hidden}.{what:peak|state}.{of:formula|formula-ddp}",
    "fsdp.h{hidden}.{what}.{code}[.{link}]",
    "fsdp.{what:largest}.{of}.{card}",
    "pipeline.{schedule}.p{stages}.m{microbatches}.{what}[.{code}.{link}]",
    "pipeline.{what:ratio}.{code}.{over}.{link}",
    "pipeline.{what:step}.{code}.{link}",
    "gpu.h{hidden}.tp{ranks}.{dtype}.{what:efficiency}[.{mode:graphed}]",
    "gpu.h{hidden}.tp{ranks}.{what:modelled-allreduce}.{of}",
    "gpu.h{hidden}.{what:hidden-copy}.{of:device|host}",
    "gpu.h{hidden}.{what:state|peak}[.{of:formula}]",
    "gpu.h{hidden}.{what:offloaded}.{of:up|down}",
    "timeline.{what}",
    "kernels.{case}.{row}.{what:step}.{code}[.{link}]",
    "kernels.{case}.{row}.{what:ratio}.{code}.{over}[.{link}]",
    "count.{of:.+}",
)))  # fmt: skip


def natural(value: str | int) -> list[tuple[int, str]]:
    """Return what orders a field or an id by the numbers in it: 8 before 64."""
    return [
        (int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(value))
    ]


def call(link: str, operation: str, ranks: int, size: int, mode: str) -> Name:
    """Return the name of a collective's time."""
    return Name("collective", link=link, operation=operation, ranks=ranks, size=size, mode=mode)


@lru_cache(maxsize=4096)
def parse(text: str) -> Name:
    """Return what an id is of; one of no known form is a topic and what is told of it."""
    for form in FORMS:
        if fields := form.read(text):
            return fields
    topic, _, what = text.partition(".")
    return Name(topic=topic, what=what)


@lru_cache(maxsize=4096)
def family_of(text: str) -> str:
    """Return an id with a star for each size: what is measured alike at several."""
    name = parse(text)
    form = next((form for form in FORMS if form.holds(name)), None)
    return form.written(name, dict.fromkeys(_SIZES, "*")) if form else text


@lru_cache(maxsize=4096)
def _id(name: Name) -> str:
    for form in FORMS:
        if form.holds(name):
            return form.written(name)
    fields = {field: value for field, value in msgspec.structs.asdict(name).items() if value}
    raise ValueError(f"no form in names.FORMS has just the fields {fields}: add one there")
