"""The figure of the causal square: which cells a rank computes in each step of the ring.

A sequence is 2n chunks, two a rank. A cell is a chunk of queries, a row, times a chunk of keys, a
column; on the diagonal half of it is computed, above the diagonal nothing. In step k a rank has the
keys of the rank k before it. Tests compare the numbers with shardlab's, which needs torch.
"""

from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from sitelab.figures.embed import Figure, make_control, render_template

CUTS = ("runs", "zigzag")
RANKS = tuple(range(2, 9))
INITIAL = 4


class Cell(NamedTuple):
    """A computed cell: its row and column, the rank, the step, and 1, or 1/2 on the diagonal."""

    row: int
    column: int
    rank: int
    step: int
    work: float


def assign_chunks(cut: str, ranks: int) -> list[int]:
    """Return which rank has each of the 2n chunks."""
    if cut == "runs":
        return [chunk // 2 for chunk in range(2 * ranks)]
    return [min(chunk, 2 * ranks - 1 - chunk) for chunk in range(2 * ranks)]


def list_cells(cut: str, ranks: int) -> list[Cell]:
    """Return the cells that are computed, row by row."""
    owners = assign_chunks(cut, ranks)
    return [
        Cell(row, column, rank, (rank - owners[column]) % ranks, 1 if column < row else 0.5)
        for row, rank in enumerate(owners)
        for column in range(row + 1)
    ]


def count_work(cut: str, ranks: int) -> list[list[float]]:
    """Return the cells that each rank computes in each step of the ring."""
    work = [[0.0] * ranks for _ in range(ranks)]
    for cell in list_cells(cut, ranks):
        work[cell.rank][cell.step] += cell.work
    return work


def start_steps(work: list[list[float]]) -> list[float]:
    """Return when each step begins, and when the last one ends: a step waits for the slowest."""
    return [0.0, *accumulate(max(step) for step in zip(*work, strict=True))]


def answer(cut: str, ranks: int, words: dict[str, str]) -> str:
    """Return how long the ring takes, in cells, and how many times the mean of a rank's work."""
    work = count_work(cut, ranks)
    end, mean = start_steps(work)[-1], sum(map(sum, work)) / ranks
    return words["takes"].format(cells=f"{end:g}", ratio=f"{end / mean:.2f}")


def describe_step(ranks: int, step: int, words: dict[str, str]) -> str:
    """Return a sentence about a step: whose keys a rank has, and what the ranks compute."""
    counts = []
    for cut in CUTS:
        by_rank = [steps[step] for steps in count_work(cut, ranks)]
        low, high = f"{min(by_rank):g}", f"{max(by_rank):g}"
        counts.append(low if low == high else words["from-to"].format(low=low, high=high))
    return words["own-step" if step == 0 else "ring-step"].format(
        step=step, last=ranks - 1, runs=counts[0], zigzag=counts[1]
    )


def make_figure(words: dict[str, str], root: Path) -> Figure:
    """Return both cuts over four ranks, after the last step, and the data for other numbers."""
    work = {cut: count_work(cut, INITIAL) for cut in CUTS}
    html = render_template(
        "zigzag", words, ranks=INITIAL, work=work, step=INITIAL - 1,
        cells={cut: {cell[:2]: cell for cell in list_cells(cut, INITIAL)} for cut in CUTS},
        owners={cut: assign_chunks(cut, INITIAL) for cut in CUTS},
        starts={cut: start_steps(work[cut]) for cut in CUTS},
        end=max(start_steps(work[cut])[-1] for cut in CUTS),
        values={cut: answer(cut, INITIAL, words) for cut in CUTS},
        text=describe_step(INITIAL, INITIAL - 1, words),
    )  # fmt: skip
    control = make_control("slider", "ranks", words, INITIAL, RANKS)
    return Figure(html, {"cuts": CUTS, "controls": [control]})
