"""The tables of the results page, in the order in which they take metrics (`tabulated`)."""

from __future__ import annotations

from costlab.publish.tabulated import Column, Table
from costlab.record.words import Words

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

_ONE = Column(
    Words("one process, one thread", "un proceso, un hilo"), other="tp.h{hidden}.step.shardlab.one"
)
_THREADS = Column(
    Words("one process, as many threads", "un proceso, otros tantos hilos"),
    other="tp.h{hidden}.step.shardlab.one-all-cores",
)
_TWO = Column(Words("two ranks", "dos ranks"), other="tp.h{hidden}.step.shardlab.{link}")
_HERE = Column(
    Words("alone, here", "a solas, aquí"), other="tp.h{hidden}.part.{what}.shardlab.{link}"
)
_SWEPT = Column(
    Words("by the sweep", "según el barrido"), other="tp.h{hidden}.sweep.{what}.shardlab.{link}"
)
_LINK = r"(?P<link>[\w-]+)"
_PIPELINE = "pipeline.{who}.p{p}.m{m}."
_COLLECTIVE = (
    r"collective\.(?P<link>[\w-]+)\.(?P<op>%s)\.n(?P<ranks>\d+)\.(?P<bytes>\d+)\.(?P<mode>%s)"
)

TABLES = (
    Table(
        Words("An all-reduce, one at a time", "Un all-reduce, de uno en uno"),
        _COLLECTIVE % ("all_reduce", "blocking"),
        (_RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives",
    ),
    Table(
        Words("The other collectives, one at a time", "Las demás colectivas, de una en una"),
        _COLLECTIVE % (r"\w+", "blocking"),
        (_OP, _RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives", folded=True,
    ),
    Table(
        Words("Back to back, a call's share", "Seguidos, la parte de una llamada"),
        _COLLECTIVE % (r"\w+", "back-to-back"),
        (_OP, _RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives", folded=True,
    ),
    Table(
        Words("The fit", "El ajuste"),
        r"fit\.(?P<link>[\w-]+)\.(?P<op>all_reduce)\.n(?P<ranks>\d+)\.(?P<what>[\w-]+)",
        (_RANKS, _WHAT), "fit",
    ),
    Table(
        Words("The fit of the other collectives", "El ajuste de las demás colectivas"),
        r"fit\.(?P<link>[\w-]+)\.(?P<op>\w+)\.n(?P<ranks>\d+)\.(?P<what>[\w-]+)",
        (_OP, _RANKS, _WHAT), "fit", folded=True,
    ),
    Table(
        Words(
            "Speed-up of two ranks over one process kept to one thread",
            "Aceleración de dos ranks frente a un proceso limitado a un hilo",
        ),
        rf"tp\.h(?P<hidden>\d+)\.speedup\.shardlab\.{_LINK}", (_HIDDEN, _ONE, _TWO), "tp",
    ),
    Table(
        Words(
            "Speed-up of two ranks over one process on as many threads",
            "Aceleración de dos ranks frente a un proceso con otros tantos hilos",
        ),
        rf"tp\.h(?P<hidden>\d+)\.speedup-over-threads\.shardlab\.{_LINK}",
        (_HIDDEN, _THREADS, _TWO), "tp",
    ),
    Table(
        Words(
            "Speed-up of one process by as many threads as there are ranks",
            "Aceleración de un proceso con tantos hilos como ranks",
        ),
        r"tp\.h(?P<hidden>\d+)\.speedup-of-threads\.shardlab", (_HIDDEN, _ONE, _THREADS), "tp",
    ),
    Table(
        Words(
            "Where two ranks overtake one process kept to one thread",
            "Dónde adelantan dos ranks a un proceso limitado a un hilo",
        ),
        r"tp\.crossover\.shardlab\.(?P<link>[\w-]+?)(?P<what>\.exists)?", (_WHAT,), "tp",
    ),
    Table(
        Words("Slow-down, its inverse", "Frenada, su inversa"),
        rf"tp\.h(?P<hidden>\d+)\.slowdown\.shardlab\.{_LINK}", (_HIDDEN,), "tp",
    ),
    Table(
        Words("Where a step's time goes", "Adónde va el tiempo de un paso"),
        rf"tp\.h(?P<hidden>\d+)\.share\.(?P<what>[\w-]+)\.shardlab\.{_LINK}",
        (_HIDDEN, _WHAT, _HERE, _SWEPT), "tp", swept=True,
    ),
    Table(
        Words("The same in seconds", "Lo mismo en segundos"),
        rf"tp\.h(?P<hidden>\d+)\.part\.(?P<what>[\w-]+)\.shardlab\.{_LINK}",
        (_HIDDEN, _WHAT), "tp", folded=True,
    ),
    Table(
        Words(
            "The step's collectives, by the sweep of single calls",
            "Las colectivas del paso, según el barrido de llamadas sueltas",
        ),
        rf"tp\.h(?P<hidden>\d+)\.sweep\.(?P<what>[\w-]+)\.shardlab\.{_LINK}",
        (_HIDDEN, _WHAT, _HERE), "tp", folded=True,
    ),
    Table(
        Words("Beside the others", "Junto a los demás"),
        rf"tp\.h(?P<hidden>\d+)\.ratio\.shardlab\.(?P<who>[\w-]+)\.{_LINK}",
        (
            _HIDDEN, Column(Words("ours against", "lo nuestro frente a"), group="who"),
            Column(Words("its step", "su paso"), other="tp.h{hidden}.step.{who}.{link}"),
        ),
        "tp",
    ),
    Table(
        Words("A step", "Un paso"),
        r"tp\.h(?P<hidden>\d+)\.step\.(?P<code>[\w-]+)"
        r"\.(?:(?P<what>one[\w-]*)|(?P<link>[\w-]+))",
        (_HIDDEN, _WHAT), "tp", folded=True,
    ),
    Table(
        Words("A step, fully sharded", "Un paso, todo fragmentado"),
        rf"fsdp\.h(?P<hidden>\d+)\.step\.(?P<code>[\w-]+)\.{_LINK}", (_HIDDEN,), "fsdp",
    ),
    Table(
        Words("One's step over another's", "El paso de uno frente al de otro"),
        rf"fsdp\.h(?P<hidden>\d+)\.ratio\.(?P<one>[\w-]+)\.(?P<other>[\w-]+)\.{_LINK}",
        (_HIDDEN,), "fsdp",
    ),
    Table(
        Words("What communication costs", "Lo que cuesta la comunicación"),
        r"fsdp\.h(?P<hidden>\d+)\.(?P<what>silent|communication|communication-cost|hidden-share"
        r"|sweep\.\w+)\.shardlab(?:\.(?P<link>[\w-]+))?",
        (
            _HIDDEN, _WHAT,
            Column(
                Words("the step, same rounds", "el paso, mismas rondas"), detail="step", unit="s"
            ),
        ),
        "fsdp", swept=True,
    ),
    Table(
        Words("Most memory at once, a rank", "Memoria máxima, por rank"),
        rf"fsdp\.h(?P<hidden>\d+)\.peak\.(?:(?P<what>formula)|(?P<code>[\w-]+)\.{_LINK})",
        (_HIDDEN, _WHAT), "fsdp",
    ),
    Table(
        Words("The largest model that fits", "El modelo más grande que cabe"),
        r"fsdp\.largest\.(?P<who>[\w-]+)(?:\.(?P<what>[\w.-]+))?",
        (_WHO, Column(Words("card", "tarjeta"), group="what")), "fsdp",
    ),
    Table(
        Words("Bubble", "Burbuja"),
        rf"pipeline\.(?P<who>[\w-]+)\.p(?P<p>\d+)\.m(?P<m>\d+)\.bubble\.shardlab\.{_LINK}",
        (
            Column(Words("schedule", "orden"), group="who"),
            Column(Words("stages", "etapas"), group="p"),
            Column(Words("micro-batches", "microlotes"), group="m"),
            Column(Words("by the formula", "según la fórmula"), other=f"{_PIPELINE}bubble-theory"),
            Column(
                Words("live micro-batches", "microlotes vivos"),
                other=f"{_PIPELINE}live.shardlab.{{link}}",
            ),
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
