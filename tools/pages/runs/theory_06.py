"""Theory 06: who computes what over cut sequences, its bytes, and predicted times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from costlab.sections.piecewise import Curve, piecewise
from pages.blocks import LANGUAGES, ROOT, fence, fill_blocks, in_language, read_words, table
from shardlab.proofs import causal_work, formulas
from shardlab.proofs.formulas.context import saved_bytes

MIB, RANKS, HEADS, HEAD, TOKENS = 1 << 20, 4, 8, 128, 8192
WORDS = read_words("theory-06")
# What is predicted: a layer of 32 heads of 128 in bf16 on the published sweep's 8 A100, at the bf16
# rate of their data sheet.
SWEEP = ROOT / "tests" / "costlab" / "data" / "nccl-a100-8.json"
RATE, A, D = 312e12, 32, 128


PAGE = "docs/theory/06-long-sequences"


@cache
def fitted() -> tuple[int, Curve]:
    """The ranks of the published sweep, and its lines: seconds of an all-reduce by bytes."""
    sweep = json.loads(SWEEP.read_text("utf-8"))
    sizes, microseconds = zip(*sweep["rows"], strict=True)
    return sweep["ranks"], piecewise(sizes, [us * 1e-6 for us in microseconds])


def predicted(tokens: int, groups: int) -> list[float]:
    """Milliseconds forward: one piece's products, its block's way, and ring, all-gather, Ulysses.

    A ring's all-reduce of n · m bytes is 2(n − 1) messages of m, one after the other; so a message
    is taken to last as long, and an all-to-all or an all-gather to be n − 1 of them.
    """
    ranks, curve = fitted()
    share = tokens // ranks

    def way(sent: float) -> float:
        return float(curve.predict(ranks * sent)) / (2 * (ranks - 1))

    products = 2 * share * share * A * D / RATE
    queries, keys = 2 * share * A * D, 2 * share * groups * D
    block, peers = way(2 * keys), ranks - 1
    return [
        1000 * seconds
        for seconds in (
            products,
            block,
            products + peers * max(products, block),
            ranks * products + peers * block,
            ranks * products + peers * 2 * (way(queries / ranks) + way(keys / ranks)),
        )
    ]


def blocks(language: str) -> dict[str, str]:
    """Return the page's blocks."""
    rows = []
    for groups in (8, 4, 1):
        sizes = {"tokens": TOKENS, "queries": HEADS * HEAD, "keys": groups * HEAD, "itemsize": 2}
        sent = {
            kind: formulas.context_attention(kind, ranks=RANKS, **sizes)
            for kind in ("ring", "ulysses")
        }
        wires = [
            f"{kind.wire / MIB:g}" if name == "ring" or groups % RANKS == 0 else "–"
            for name, kind in sent.items()
        ]
        rows.append(
            [f"{groups}", *wires, f"{saved_bytes(ranks=RANKS, heads=HEADS, **sizes) / MIB:.2f}"]
        )
    times = [
        [f"{tokens:,}".replace(",", "," if language == "en" else "\N{NO-BREAK SPACE}"), f"{groups}"]
        + [f"{ms:.3g}" if ms < 10 else f"{ms:.1f}" for ms in predicted(tokens, groups)]
        for groups in (32, 8)
        for tokens in (4096, 8192, 16384, 32768, 131072)
    ]
    return {
        "who computes what": fence(causal_work.draw_both_cuts(RANKS)),
        "bytes": table(WORDS[language]["bytes"], ">>>>", rows),
        "predicted": table(WORDS[language]["predicted"], ">>>>>>>", times),
    }


def render() -> Iterator[tuple[Path, str]]:
    """Yield the page in each language."""
    for language in LANGUAGES:
        path = in_language(PAGE, language)
        yield path, fill_blocks(path, blocks(language))
