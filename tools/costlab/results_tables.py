"""The tables of the results page: which metrics go where, and what stands beside each value.

A table takes the metrics whose ids fit its pattern and that no table before it took; its columns
come from the pattern's named groups. Each metric has one row, since a row has one quotable value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from costlab import quantity
from costlab.claims import Words
from costlab.result import Metric

Metrics = Mapping[str, Metric]


class Column(msgspec.Struct, frozen=True):
    """A column beside the value: a named group of the pattern, or something in the detail."""

    title: Words
    group: str = ""
    detail: str = ""
    unit: str = ""
    other: str = ""  # another metric's id, with the groups in braces


class Table(msgspec.Struct, frozen=True):
    """One table. `folded` hides it behind its title until it is asked for."""

    title: Words
    pattern: str
    columns: tuple[Column, ...]
    section: str
    folded: bool = False

    def rows(self, metrics: Metrics) -> list[tuple[re.Match[str], Metric]]:
        """Return the metrics that fit, by their groups in natural order."""
        found = [
            (match, metric)
            for name, metric in metrics.items()
            if (match := re.fullmatch(self.pattern, name))
        ]
        return sorted(found, key=lambda one: [_natural(group) for group in one[0].groups()])

    def cell(self, column: Column, match: re.Match[str], metric: Metric, metrics: Metrics) -> str:
        """Return what stands in a column of a metric's row; nothing where there is nothing."""
        if column.group:
            said = match[column.group] or ""
            return GROUPS.get(column.group, _plain)(said)
        if column.detail:
            value = metric.detail.get(column.detail)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return quantity.written(float(value), column.unit)
            return str(value) if value is not None else ""
        beside = metrics.get(column.other.format(**match.groupdict()))
        return quantity.shown(beside) if beside else ""


def _natural(text: str | None) -> tuple[tuple[int, str], ...]:
    return tuple(
        (int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text or "")
    )


def _plain(said: str) -> str:
    return said


def _bytes(said: str) -> str:
    return quantity.written(float(said), "B")


def _hyphened(said: str) -> str:
    return said.replace("_", "-")


def _code(said: str) -> str:
    return f"`{said.lstrip('.')}`" if said else ""


GROUPS: dict[str, Callable[[str], str]] = {
    "bytes": _bytes,
    "op": _hyphened,
    "what": _code,
    "who": _code,
}

_LINK = Column(Words("link", "enlace"), group="link")
_SIZE = Column(Words("size", "tamaño"), group="bytes")
_RANKS = Column(Words("ranks", "ranks"), group="ranks")
_MODE = Column(Words("mode", "modo"), group="mode")
_OP = Column(Words("collective", "colectiva"), group="op")
_HIDDEN = Column(Words("hidden", "hidden"), group="hidden")
_WHO = Column(Words("who", "quién"), group="who")
_WHAT = Column(Words("what", "qué"), group="what")
_ALGBW = Column(Words("algbw", "algbw"), detail="algbw", unit="B/s")
_BUSBW = Column(Words("busbw", "busbw"), detail="busbw", unit="B/s")
_P95 = Column(Words("95th percentile", "percentil 95"), detail="p95", unit="s")

_PIPELINE = "pipeline.{who}.p{p}.m{m}."
_COLLECTIVE = (
    r"collective\.(?P<link>[\w-]+)\.(?P<op>%s)\.n(?P<ranks>\d+)\.(?P<bytes>\d+)\.(?P<mode>%s)"
)

TABLES = (
    Table(
        Words("An all-reduce, one at a time", "Un all-reduce, de uno en uno"),
        _COLLECTIVE % ("all_reduce", "blocking"),
        (_LINK, _RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives",
    ),
    Table(
        Words("The other collectives, one at a time", "Las demás colectivas, de una en una"),
        _COLLECTIVE % (r"\w+", "blocking"),
        (_LINK, _OP, _RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives", folded=True,
    ),
    Table(
        Words("Back to back, a call's share", "Seguidos, la parte de una llamada"),
        _COLLECTIVE % (r"\w+", "back-to-back"),
        (_LINK, _OP, _RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives", folded=True,
    ),
    Table(
        Words("The fit", "El ajuste"),
        r"fit\.(?P<link>[\w-]+)\.(?P<op>all_reduce)\.n(?P<ranks>\d+)\.(?P<what>[\w-]+)",
        (_LINK, _RANKS, _WHAT), "fit",
    ),
    Table(
        Words("The fit of the other collectives", "El ajuste de las demás colectivas"),
        r"fit\.(?P<link>[\w-]+)\.(?P<op>\w+)\.n(?P<ranks>\d+)\.(?P<what>[\w-]+)",
        (_LINK, _OP, _RANKS, _WHAT), "fit", folded=True,
    ),
    Table(
        Words("Speed-up of two ranks over one", "Aceleración de dos ranks frente a uno"),
        r"tp\.h(?P<hidden>\d+)\.speedup\.(?P<link>[\w-]+)",
        (
            _HIDDEN, _LINK,
            Column(Words("one rank's step", "paso de un rank"), other="tp.h{hidden}.step.one"),
            Column(Words("two ranks' step", "paso de dos ranks"), other="tp.h{hidden}.step.{link}"),
        ),
        "tp",
    ),
    Table(
        Words("Where they cross", "Dónde se cruzan"),
        r"tp\.crossover\.(?P<link>[\w-]+?)(?P<what>\.exists)?",
        (_LINK, _WHAT), "tp",
    ),
    Table(
        Words("Slow-down, its inverse", "Frenada, su inversa"),
        r"tp\.h(?P<hidden>\d+)\.slowdown\.(?P<link>[\w-]+)", (_HIDDEN, _LINK), "tp",
    ),
    Table(
        Words("Where a step's time goes", "Adónde va el tiempo de un paso"),
        r"tp\.h(?P<hidden>\d+)\.share\.(?P<what>[\w.-]+)",
        (_HIDDEN, _WHAT, Column(Words("time", "tiempo"), other="tp.h{hidden}.part.{what}")),
        "tp",
    ),
    Table(
        Words("The same in seconds", "Lo mismo en segundos"),
        r"tp\.h(?P<hidden>\d+)\.part\.(?P<what>[\w.-]+)", (_HIDDEN, _WHAT), "tp", folded=True,
    ),
    Table(
        Words("Beside the others", "Junto a los demás"),
        r"tp\.h(?P<hidden>\d+)\.ratio\.(?P<who>[\w-]+)",
        (
            _HIDDEN, Column(Words("ours against", "lo nuestro frente a"), group="who"),
            Column(Words("its step", "su paso"), other="tp.h{hidden}.step.{who}"),
        ),
        "tp",
    ),
    Table(
        Words("A step", "Un paso"),
        r"tp\.h(?P<hidden>\d+)\.step\.(?P<who>[\w-]+)", (_HIDDEN, _WHO), "tp", folded=True,
    ),
    Table(
        Words("A step, fully sharded", "Un paso, todo fragmentado"),
        r"fsdp\.h(?P<hidden>\d+)\.step\.(?P<who>[\w-]+)", (_HIDDEN, _WHO), "fsdp",
    ),
    Table(
        Words("Hidden communication, and ratios", "Comunicación oculta, y proporciones"),
        r"fsdp\.h(?P<hidden>\d+)\.(?P<what>hidden-share|communication-cost|ratio\.[\w.-]+)",
        (_HIDDEN, _WHAT), "fsdp",
    ),
    Table(
        Words("Most memory at once, a rank", "Memoria máxima, por rank"),
        r"fsdp\.h(?P<hidden>\d+)\.peak\.(?P<who>[\w.-]+)", (_HIDDEN, _WHO), "fsdp",
    ),
    Table(
        Words("The largest model that fits", "El modelo más grande que cabe"),
        r"fsdp\.largest\.(?P<who>[\w-]+)(?:\.(?P<what>[\w.-]+))?",
        (_WHO, Column(Words("card", "tarjeta"), group="what")), "fsdp",
    ),
    Table(
        Words("Bubble", "Burbuja"),
        r"pipeline\.(?P<who>[\w-]+)\.p(?P<p>\d+)\.m(?P<m>\d+)\.bubble",
        (
            Column(Words("schedule", "orden"), group="who"),
            Column(Words("stages", "etapas"), group="p"),
            Column(Words("micro-batches", "microlotes"), group="m"),
            Column(Words("by the formula", "según la fórmula"), other=f"{_PIPELINE}bubble-theory"),
            Column(Words("live micro-batches", "microlotes vivos"), other=f"{_PIPELINE}live"),
        ),
        "pipeline",
    ),
    Table(
        Words("Matrices that shrink", "Matrices que encogen"),
        r"gpu\.h(?P<hidden>\d+)\.tp(?P<ranks>\d+)\.(?P<what>\w+)\.efficiency",
        (
            _HIDDEN, Column(Words("TP", "TP"), group="ranks"),
            Column(Words("dtype", "dtype"), group="what"),
        ),
        "one-gpu",
    ),
    Table(
        Words("Counted, not timed", "Contado, no cronometrado"),
        r"count\.(?P<what>.+)", (_WHAT,), "counts", folded=True,
    ),
)  # fmt: skip
