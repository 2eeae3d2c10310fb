"""The tables of the results page, in the order in which they take metrics (`tabulated`)."""

from __future__ import annotations

from costlab.publish.tabulated import Column, Table
from costlab.record.names import Wanted
from costlab.record.words import Words

_SIZE = Column(Words("size", "tamaño"), "size")
_RANKS = Column(Words("ranks", "ranks"), "ranks")
_OP = Column(Words("collective", "colectiva"), "operation")
_HIDDEN = Column(Words("hidden", "hidden"), "hidden")
_WHO = Column(Words("who", "quién"), "of")
_WHAT = Words("what", "qué")
_PART = Column(_WHAT, "of")
_ALGBW = Column(Words("algbw", "algbw"), detail="algbw", unit="B/s")
_BUSBW = Column(Words("busbw", "busbw"), detail="busbw", unit="B/s")
_P95 = Column(Words("95th percentile", "percentil 95"), detail="p95", unit="s")

_ONE = Column(
    Words("one process, one thread", "un proceso, un hilo"),
    other={"what": "step", "of": "one", "link": ""},
)
_THREADS = Column(
    Words("one process, as many threads", "un proceso, otros tantos hilos"),
    other={"what": "step", "of": "one-all-cores", "link": ""},
)
_TWO = Column(Words("two ranks", "dos ranks"), other={"what": "step"})
_HERE = Column(Words("alone, here", "a solas, aquí"), other={"what": "part"})
_SWEPT = Column(Words("by the sweep", "según el barrido"), other={"what": "sweep"})
_CALLS = "link operation ranks size mode"


def _called(mode: str) -> Wanted:
    return {"topic": "collective", "mode": mode}


def _of_two(what: str) -> Wanted:
    """What is told of two ranks' steps."""
    return {"topic": "tp", "what": what, "ranks": 0}


TABLES = (
    Table(
        Words("An all-reduce, one at a time", "Un all-reduce, de uno en uno"),
        {**_called("blocking"), "operation": "all_reduce"}, _CALLS,
        (_RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives",
    ),
    Table(
        Words("The other collectives, one at a time", "Las demás colectivas, de una en una"),
        _called("blocking"), _CALLS,
        (_OP, _RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives", folded=True,
    ),
    Table(
        Words("Back to back, a call's share", "Seguidos, la parte de una llamada"),
        _called("back-to-back"), _CALLS,
        (_OP, _RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives", folded=True,
    ),
    Table(
        Words("The fit", "El ajuste"),
        {"topic": "fit", "operation": "all_reduce"}, "link ranks what",
        (_RANKS, Column(_WHAT, "what")), "fit",
    ),
    Table(
        Words("The fit of the other collectives", "El ajuste de las demás colectivas"),
        {"topic": "fit"}, "link operation ranks what",
        (_OP, _RANKS, Column(_WHAT, "what")), "fit", folded=True,
    ),
    Table(
        Words(
            "Speed-up of two ranks over one process kept to one thread",
            "Aceleración de dos ranks frente a un proceso limitado a un hilo",
        ),
        _of_two("speedup"), "hidden link", (_HIDDEN, _ONE, _TWO), "tp",
    ),
    Table(
        Words(
            "Speed-up of two ranks over one process on as many threads",
            "Aceleración de dos ranks frente a un proceso con otros tantos hilos",
        ),
        _of_two("speedup-over-threads"), "hidden link",
        (_HIDDEN, _THREADS, _TWO), "tp",
    ),
    Table(
        Words(
            "Speed-up of one process by as many threads as there are ranks",
            "Aceleración de un proceso con tantos hilos como ranks",
        ),
        _of_two("speedup-of-threads"), "hidden", (_HIDDEN, _ONE, _THREADS), "tp",
    ),
    Table(
        Words(
            "Where two ranks overtake one process kept to one thread",
            "Dónde adelantan dos ranks a un proceso limitado a un hilo",
        ),
        _of_two("crossover"), "link of", (_PART,), "tp",
    ),
    Table(
        Words("Slow-down, its inverse", "Frenada, su inversa"),
        _of_two("slowdown"), "hidden link", (_HIDDEN,), "tp",
    ),
    Table(
        Words("Where a step's time goes", "Adónde va el tiempo de un paso"),
        _of_two("share"), "hidden of link",
        (_HIDDEN, _PART, _HERE, _SWEPT), "tp", swept=True,
    ),
    Table(
        Words("The same in seconds", "Lo mismo en segundos"),
        _of_two("part"), "hidden of link",
        (_HIDDEN, _PART), "tp", folded=True,
    ),
    Table(
        Words(
            "The step's collectives, by the sweep of single calls",
            "Las colectivas del paso, según el barrido de llamadas sueltas",
        ),
        _of_two("sweep"), "hidden of link",
        (_HIDDEN, _PART, _HERE), "tp", folded=True,
    ),
    Table(
        Words("Beside the others", "Junto a los demás"),
        _of_two("ratio"), "hidden over link",
        (
            _HIDDEN, Column(Words("ours against", "lo nuestro frente a"), "over"),
            Column(
                Words("its step", "su paso"), other={"what": "step", "code": "=over", "over": ""}
            ),
        ),
        "tp",
    ),
    Table(
        Words("A step", "Un paso"),
        _of_two("step"), "hidden code of link",
        (_HIDDEN, _PART), "tp", folded=True,
    ),
    Table(
        Words("A step, fully sharded", "Un paso, todo fragmentado"),
        {"topic": "fsdp", "what": "step"}, "hidden code link", (_HIDDEN,), "fsdp",
    ),
    Table(
        Words("One's step over another's", "El paso de uno frente al de otro"),
        {"topic": "fsdp", "what": "ratio"}, "hidden code over link",
        (_HIDDEN,), "fsdp",
    ),
    Table(
        Words("What communication costs", "Lo que cuesta la comunicación"),
        {
            "topic": "fsdp",
            "what": ("silent", "communication", "communication-cost", "hidden-share", "sweep"),
        },
        "hidden what of link",
        (
            _HIDDEN, Column(_WHAT, "what of"),
            Column(
                Words("the step, same rounds", "el paso, mismas rondas"), detail="step", unit="s"
            ),
        ),
        "fsdp", swept=True,
    ),
    Table(
        Words("Most memory at once, a rank", "Memoria máxima, por rank"),
        {"topic": "fsdp", "what": "peak"}, "hidden of code link",
        (_HIDDEN, _PART), "fsdp",
    ),
    Table(
        Words("The largest model that fits", "El modelo más grande que cabe"),
        {"topic": "fsdp", "what": "largest"}, "of card",
        (_WHO, Column(Words("card", "tarjeta"), "card")), "fsdp",
    ),
    Table(
        Words("Bubble", "Burbuja"),
        {"topic": "pipeline", "what": "bubble"}, "schedule stages microbatches link",
        (
            Column(Words("schedule", "orden"), "schedule"),
            Column(Words("stages", "etapas"), "stages"),
            Column(Words("micro-batches", "microlotes"), "microbatches"),
            Column(
                Words("by the formula", "según la fórmula"),
                other={"what": "bubble-theory", "code": "", "link": ""},
            ),
            Column(Words("live micro-batches", "microlotes vivos"), other={"what": "live"}),
        ),
        "pipeline",
    ),
    Table(
        Words("Matrices that shrink", "Matrices que encogen"),
        {"topic": "gpu", "what": "efficiency"}, "hidden ranks dtype",
        (
            _HIDDEN, Column(Words("TP", "TP"), "ranks"),
            Column(Words("dtype", "dtype"), "dtype"),
        ),
        "one-gpu",
    ),
    Table(
        Words("Counted, not timed", "Contado, no cronometrado"),
        {"topic": "count"}, "of", (_PART,), "counts", folded=True,
    ),
)  # fmt: skip
