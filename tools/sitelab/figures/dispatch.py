"""The figure of a layer of experts: which rows go to which expert, and what each rank sends.

A row is the copy of a token that goes to one of its experts. Each of g ranks has E/g experts.
"""

import math
import random
from pathlib import Path
from typing import Any, NamedTuple

from shardlab.proofs.collective import Call
from sitelab.figures import embed
from sitelab.figures.embed import Figure, make_control, render_template

EXPERTS = 8
TOKENS = 8  # of each rank
ROW = 128 * 4  # bytes: 128 numbers in fp32
RANKS = (2, 4, 8)
TOP = (1, 2, 4)
FACTORS = (0, 1, 1.5, 2)  # of the capacity; 0 is none
LEANS = {"uneven": 0.0, "skewed": 1.5}  # what is added to the scores of experts 0 and 1
LOADS = ("even", *LEANS)
INITIAL: dict[str, Any] = {"load": "skewed", "ranks": 4, "top": 2, "factor": 0, "pads": False}
FIRST = 2  # the moment that is shown


class Rows(NamedTuple):
    """A rank's rows for one expert: those that it takes, that it drops, and empty ones."""

    kept: int
    dropped: int
    padded: int


def score_tokens(load: str) -> list[list[list[float]]]:
    """Return the router's score of each expert for each token of each rank."""
    drawn, experts = random.Random(4), range(EXPERTS)  # noqa: S311
    if load == "even":  # each expert is the first choice of one token, the second of another one, …
        return [[[-((e - t) % EXPERTS) for e in experts] for t in range(TOKENS)]] * max(RANKS)
    return [[[drawn.gauss() + LEANS[load] * (e < 2) for e in experts] for _ in range(TOKENS)]
            for _ in range(max(RANKS))]  # fmt: skip


def count_choices(load: str, top: int) -> list[list[int]]:
    """Return how many tokens of each rank choose each expert."""
    experts = range(EXPERTS)
    chosen = ([sorted(experts, key=scores.__getitem__)[-top:] for scores in tokens]
              for tokens in score_tokens(load))  # fmt: skip
    return [[sum(expert in best for best in tokens) for expert in experts] for tokens in chosen]


def find_capacity(at: dict[str, Any]) -> int | None:
    """Return the rows that an expert takes of each rank; None if it takes all."""
    share: float = TOKENS * at["top"] / EXPERTS * at["factor"]
    return min(TOKENS, math.ceil(share)) if share else None


def count_rows(at: dict[str, Any]) -> list[list[Rows]]:
    """Return each rank's rows for each expert."""
    limit = find_capacity(at)

    def split(chosen: int) -> Rows:
        kept = chosen if limit is None else min(chosen, limit)
        return Rows(kept, chosen - kept, limit - kept if limit is not None and at["pads"] else 0)

    return [[*map(split, counts)] for counts in count_choices(at["load"], at["top"])[: at["ranks"]]]


def count_messages(at: dict[str, Any]) -> list[list[int]]:
    """Return how many rows each rank has for the experts of each rank."""
    share = EXPERTS // at["ranks"]
    return [[sum(cell.kept + cell.padded for cell in row[first : first + share])
             for first in range(0, EXPERTS, share)] for row in count_rows(at)]  # fmt: skip


def count_sent(at: dict[str, Any]) -> dict[str, list[int]]:
    """Return the bytes that each rank sends: the rows of its tokens out, and results back."""
    rows = count_messages(at)
    away = [[ROW * count * (a != b) for b, count in enumerate(row)] for a, row in enumerate(rows)]
    return {"out": [*map(sum, away)], "back": [*map(sum, zip(*away, strict=True))]}


def answer(at: dict[str, Any], words: dict[str, str]) -> dict[str, str]:
    """Return the figure's answers."""
    cells = [cell for row in count_rows(at) for cell in row]
    computed = [sum(column) for column in zip(*count_messages(at), strict=True)]
    sent = count_sent(at)
    tokens = at["ranks"] * TOKENS * ROW
    whole = sum(Call(op, tokens, at["ranks"]).wire for op in ("all_gather", "reduce_scatter"))
    ratio = math.floor(100 * max(computed) * at["ranks"] / sum(computed) + 0.5) / 100
    return {
        "dropped": str(sum(cell.dropped for cell in cells)),
        "padded": str(sum(cell.padded for cell in cells)),
        "busiest": words["times"].format(rows=max(computed), ratio=f"{ratio:.2f}"),
        "sent": embed.format_bytes(max(map(sum, zip(*sent.values(), strict=True)))),
        "gathered": embed.format_bytes(whole),
    }


def describe_moment(at: dict[str, Any], moment: int, words: dict[str, str]) -> str:
    """Return a sentence about a moment."""
    key, limit = ("choose", "limit", "out", "back")[moment], find_capacity(at)
    sent = count_sent(at).get(key, [0])
    return words["no-limit" if key == "limit" and limit is None else key].format(
        ranks=at["ranks"], tokens=TOKENS, top=at["top"], limit=limit,
        rows=at["ranks"] * TOKENS * at["top"],
        most=embed.format_bytes(max(sent)), least=embed.format_bytes(min(sent)),
    )  # fmt: skip


def make_figure(words: dict[str, str], root: Path) -> Figure:
    """Return one dispatch, and the data for any other."""
    rows = count_rows(INITIAL)
    html = render_template(
        "dispatch", words, rows=rows, share=EXPERTS // INITIAL["ranks"], moment=FIRST,
        computed=[sum(cell.kept + cell.padded for cell in column)
                  for column in zip(*rows, strict=True)],
        sent=[embed.format_bytes(sum(each))
              for each in zip(*count_sent(INITIAL).values(), strict=True)],
        values=answer(INITIAL, words), text=describe_moment(INITIAL, FIRST, words),
    )  # fmt: skip
    controls = [
        make_control(kind, name, words, INITIAL[name], values)
        for kind, name, values in (("choice", "load", LOADS), ("slider", "ranks", RANKS),
            ("slider", "top", TOP), ("slider", "factor", FACTORS), ("tick", "pads", ()))
    ]  # fmt: skip
    choices = {load: {top: count_choices(load, top) for top in TOP} for load in LOADS}
    data = {"choices": choices, "tokens": TOKENS, "row": ROW, "moment": FIRST}
    return Figure(html, data | {"controls": controls})
