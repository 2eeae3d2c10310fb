"""The figure of a collective's steps: which piece each rank sends, and whose numbers it then holds.

A rank's tensor is n pieces. In a ring every rank sends one piece a step to the next rank; in an
all-to-all step k goes straight to the k-th rank after. What a piece holds is a number whose bit r
says whether rank r's numbers are in it.
"""

from pathlib import Path
from typing import NamedTuple

from shardlab.proofs.collective import SENT, Call
from shardlab.proofs.formulas.seconds import steps
from sitelab.figures import embed
from sitelab.figures.embed import Figure, make_control, render_template

OPS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
RANKS = tuple(range(2, 9))
PAYLOAD = 840_000_000  # bytes: 2 to 8 ranks divide it
# The operation, the ranks, and the step that is shown: every rank has its first complete piece.
INITIAL = ("all_reduce", 4, 3)


class Send(NamedTuple):
    """A message: rank `source` sends its piece `piece`, which becomes piece `place` of `target`."""

    source: int
    target: int
    piece: int
    place: int


def list_sends(op: str, ranks: int, step: int) -> list[Send]:
    """Return the messages of a step, one from each rank; the first step is 1."""
    if op == "all_to_all":
        targets = [(source + step) % ranks for source in range(ranks)]
        return [Send(source, target, target, source) for source, target in enumerate(targets)]
    # Rank r ends a reduce-scatter with piece r, which left its right neighbour first.
    first = 1 if op == "all_gather" else 0
    pieces = [(source - step + first) % ranks for source in range(ranks)]
    return [Send(r, (r + 1) % ranks, piece, piece) for r, piece in enumerate(pieces)]


def is_reducing(op: str, ranks: int, step: int) -> bool:
    """Return whether the receivers of a step add what they receive to their own numbers."""
    return op in ("all_reduce", "reduce_scatter") and step < ranks


def trace_pieces(op: str, ranks: int, last: int) -> tuple[list[list[int]], list[int]]:
    """Return each rank's pieces after a step, and the bytes that each rank has sent until then."""
    contents = [
        [1 << rank if op != "all_gather" or piece == rank else 0 for piece in range(ranks)]
        for rank in range(ranks)
    ]
    sent = [0] * ranks
    for step in range(1, last + 1):
        moving = []
        for send in list_sends(op, ranks, step):
            moves = 1 << send.source if op == "all_to_all" else contents[send.source][send.piece]
            if op == "all_to_all" or is_reducing(op, ranks, step):
                contents[send.source][send.piece] &= ~moves
            moving.append((send, moves))
        for send, moves in moving:
            contents[send.target][send.place] |= moves
            sent[send.source] += PAYLOAD // ranks
    return contents, sent


def describe_step(op: str, ranks: int, step: int, words: dict[str, str]) -> str:
    """Return a sentence about a step."""
    if step == 0:
        return words["start"].format(size=embed.format_bytes(PAYLOAD), ranks=ranks)
    key = "adds" if is_reducing(op, ranks, step) else "keeps"
    key = "far" if op == "all_to_all" else key
    size = embed.format_bytes(PAYLOAD // ranks)
    return words[key].format(step=step, last=steps(op, ranks), size=size)


def answer(op: str, ranks: int, step: int, words: dict[str, str]) -> dict[str, str]:
    """Return the figure's answers: what a rank has sent, and what the formula says of the whole."""
    _, sent = trace_pieces(op, ranks, step)
    formula = words[f"formula-{SENT[op][0]}"]
    whole = embed.format_bytes(Call(op, PAYLOAD, ranks).wire)
    return {"sent": embed.format_bytes(max(sent)), "formula": f"{formula} = {whole}"}


def make_figure(words: dict[str, str], root: Path) -> Figure:
    """Return one step of an all-reduce, and the data for any other."""
    op, ranks, step = INITIAL
    contents, sent = trace_pieces(op, ranks, step)
    sends = list_sends(op, ranks, step)
    html = render_template(
        "ring", words, ranks=ranks, contents=contents, whole=2**ranks - 1,
        final=trace_pieces(op, ranks, steps(op, ranks))[0],
        sent=[embed.format_bytes(count) for count in sent],
        leaving={(send.source, send.piece) for send in sends},
        arriving={(send.target, send.place) for send in sends}, back=sends[-1].piece,
        values=answer(op, ranks, step, words), text=describe_step(op, ranks, step, words),
    )  # fmt: skip
    controls = [
        make_control("choice", "op", words, op, OPS),
        make_control("slider", "ranks", words, ranks, RANKS),
    ]
    wire = {name: SENT[name] for name in OPS}
    return Figure(html, {"payload": PAYLOAD, "wire": wire, "step": step, "controls": controls})
