"""The tables of the results page, in the order in which they take metrics (`tabulated`)."""

from costlab.publish.tabulated import Column, Table
from costlab.record.names import Wanted
from costlab.record.words import words

_SIZE = Column(words("tables.size"), "size")
_RANKS = Column(words("tables.ranks"), "ranks")
_OP = Column(words("tables.collective"), "operation")
_HIDDEN = Column(words("tables.hidden"), "hidden")
_WHO = Column(words("tables.who"), "of")
_WHAT = words("tables.what")
_PART = Column(_WHAT, "of")
_ALGBW = Column(words("tables.algbw"), detail="algbw", unit="B/s")
_BUSBW = Column(words("tables.busbw"), detail="busbw", unit="B/s")
_P95 = Column(words("tables.95th-percentile"), detail="p95", unit="s")

_ONE = Column(
    words("tables.one-process-one-thread"),
    other={"what": "step", "of": "one", "link": ""},
)
_THREADS = Column(
    words("tables.one-process-as-many-threads"),
    other={"what": "step", "of": "one-all-cores", "link": ""},
)
_TWO = Column(words("tables.two-ranks"), other={"what": "step"})
_HERE = Column(words("tables.alone-here"), other={"what": "part"})
_SWEPT = Column(words("tables.by-the-sweep"), other={"what": "sweep"})
_CALLS = "link operation ranks size mode"


def _called(mode: str) -> Wanted:
    return {"topic": "collective", "mode": mode}


def _of_two(what: str) -> Wanted:
    """What is told of two ranks' steps."""
    return {"topic": "tp", "what": what, "ranks": 0}


TABLES = (
    Table(
        words("tables.an-all-reduce-one-at-a"),
        {**_called("blocking"), "operation": "all_reduce"}, _CALLS,
        (_RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives",
    ),
    Table(
        words("tables.the-other-collectives-one-at-a"),
        _called("blocking"), _CALLS,
        (_OP, _RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives",
    ),
    Table(
        words("tables.back-to-back-a-call-s"),
        _called("back-to-back"), _CALLS,
        (_OP, _RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives",
    ),
    Table(
        words("tables.enqueued-a-call-s"),
        _called("enqueued"), _CALLS,
        (_OP, _RANKS, _SIZE, _ALGBW, _BUSBW, _P95), "collectives",
    ),
    Table(
        words("tables.the-fit"),
        {"topic": "fit", "operation": "all_reduce"}, "link ranks what",
        (_RANKS, Column(_WHAT, "what")), "fit",
    ),
    Table(
        words("tables.the-fit-of-the-other-collectives"),
        {"topic": "fit"}, "link operation ranks what",
        (_OP, _RANKS, Column(_WHAT, "what")), "fit",
    ),
    Table(
        words("tables.speed-up-of-two-ranks-over"),
        _of_two("speedup"), "hidden link", (_HIDDEN, _ONE, _TWO), "tp", across="hidden",
    ),
    Table(
        words("tables.speed-up-of-two-ranks-over-2"),
        _of_two("speedup-over-threads"), "hidden link",
        (_HIDDEN, _THREADS, _TWO), "tp", across="hidden",
    ),
    Table(
        words("tables.speed-up-of-one-process-by"),
        _of_two("speedup-of-threads"), "hidden", (_HIDDEN, _ONE, _THREADS), "tp", across="hidden",
    ),
    Table(
        words("tables.where-two-ranks-overtake-one-process"),
        _of_two("crossover"), "link of", (_PART,), "tp", open=True,
    ),
    Table(
        words("tables.slow-down-its-inverse"),
        _of_two("slowdown"), "hidden link", (_HIDDEN,), "tp",
    ),
    Table(
        words("tables.where-a-step-s-time-goes"),
        _of_two("share"), "hidden of link",
        (_HIDDEN, _PART, _HERE, _SWEPT), "tp", swept=True, across="hidden",
    ),
    Table(
        words("tables.the-same-in-seconds"),
        _of_two("part"), "hidden of link",
        (_HIDDEN, _PART), "tp",
    ),
    Table(
        words("tables.the-step-s-collectives-by-the"),
        _of_two("sweep"), "hidden of link",
        (_HIDDEN, _PART, _HERE), "tp",
    ),
    Table(
        words("tables.beside-the-others"),
        _of_two("ratio"), "hidden over link",
        (
            _HIDDEN, Column(words("tables.ours-against"), "over"),
            Column(
                words("tables.its-step"), other={"what": "step", "code": "=over", "over": ""}
            ),
        ),
        "tp", across="hidden",
    ),
    Table(
        words("tables.a-step"),
        _of_two("step"), "hidden code of link",
        (_HIDDEN, _PART), "tp",
    ),
    Table(
        words("tables.a-step-fully-sharded"),
        {"topic": "fsdp", "what": "step"}, "hidden code link", (_HIDDEN,), "fsdp", across="hidden",
    ),
    Table(
        words("tables.one-s-step-over-another-s"),
        {"topic": "fsdp", "what": "ratio"}, "hidden code over link",
        (_HIDDEN,), "fsdp", across="hidden",
    ),
    Table(
        words("tables.what-communication-costs"),
        {
            "topic": "fsdp",
            "what": ("silent", "communication", "communication-cost", "hidden-share", "sweep"),
        },
        "hidden what of link",
        (
            _HIDDEN, Column(_WHAT, "what of"),
            Column(
                words("tables.the-step-same-rounds"), detail="step", unit="s"
            ),
        ),
        "fsdp", swept=True,
    ),
    Table(
        words("tables.most-memory-at-once-a-rank"),
        {"topic": "fsdp", "what": "peak"}, "hidden of code link",
        (_HIDDEN, _PART), "fsdp", across="hidden",
    ),
    Table(
        words("tables.the-largest-model-that-fits"),
        {"topic": "fsdp", "what": "largest"}, "of card",
        (_WHO, Column(words("tables.card"), "card")), "fsdp", open=True,
    ),
    Table(
        words("tables.bubble"),
        {"topic": "pipeline", "what": "bubble"}, "schedule stages microbatches link",
        (
            Column(words("tables.schedule"), "schedule"),
            Column(words("tables.stages"), "stages"),
            Column(words("tables.micro-batches"), "microbatches"),
            Column(
                words("tables.by-the-formula"),
                other={"what": "bubble-theory", "code": "", "link": ""},
            ),
            Column(words("tables.live-micro-batches"), other={"what": "live"}),
        ),
        "pipeline", open=True,
    ),
    Table(
        words("tables.matrices-that-shrink"),
        {"topic": "gpu", "what": "efficiency"}, "hidden ranks dtype mode",
        (
            _HIDDEN, Column(words("tables.tp"), "ranks"),
            Column(words("tables.dtype"), "dtype"), Column(words("tables.cuda-graph"), "mode"),
        ),
        "one-gpu",
    ),
    Table(
        words("tables.copies-beneath-products"),
        {"topic": "gpu", "what": "hidden-copy"}, "hidden of",
        (_HIDDEN, Column(words("tables.from"), "of")), "one-gpu",
    ),
    Table(
        words("tables.held-and-moved-in-a-step"),
        {"topic": "gpu", "what": ("state", "peak", "offloaded")}, "hidden what of",
        (_HIDDEN, Column(_WHAT, "what of")), "one-gpu",
    ),
    Table(
        words("tables.counted-not-timed"),
        {"topic": "count"}, "of", (_PART,), "counts",
    ),
)  # fmt: skip
