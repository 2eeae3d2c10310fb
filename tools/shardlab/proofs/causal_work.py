"""`python -m shardlab.proofs.causal_work`: each rank's work under a causal mask, for two cuts.

A sequence is 2n chunks. A cell is the attention of a chunk of queries (a row) to a chunk of keys (a
column). It shows the rank that computes it, which is the rank that has the queries. No rank
computes the cells of future keys, and a cell on the diagonal counts half.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from shardlab.context.zigzag import order

CUTS = {"in runs": False, "zig-zag": True}


def assign_chunks(ranks: int, *, balanced: bool) -> list[int]:
    """Return which rank has each of the 2n chunks."""
    chunks = order(2 * ranks, ranks).tolist() if balanced else range(2 * ranks)
    return [place // 2 for _, place in sorted((chunk, at) for at, chunk in enumerate(chunks))]


def count_cells(ranks: int, *, balanced: bool) -> list[float]:
    """Return how many cells each rank computes."""
    cells = [0.0] * ranks
    for chunk, rank in enumerate(assign_chunks(ranks, balanced=balanced)):
        cells[rank] += chunk + 0.5
    return cells


def draw_both_cuts(ranks: int) -> str:
    """Return the picture of both cuts, next to each other, with each rank's number of cells."""
    columns = []
    for name, balanced in CUTS.items():
        chunk_owners, cells = (
            assign_chunks(ranks, balanced=balanced),
            count_cells(ranks, balanced=balanced),
        )
        rows = [f"{name}: " + " ".join(map(str, chunk_owners)), ""]
        rows += [
            f"{chunk:>3}  " + " ".join([str(rank)] * (chunk + 1) + ["·"] * (2 * ranks - chunk - 1))
            for chunk, rank in enumerate(chunk_owners)
        ]
        rows += [""] + [f"rank {rank}: {count:4.1f} cells" for rank, count in enumerate(cells)]
        rows += [f"the slowest: {max(cells) * ranks / sum(cells):.2f} of the mean"]
        columns.append(rows)
    width = max(map(len, columns[0])) + 4
    pairs = zip(*columns, strict=True)
    return "\n".join(f"{first:<{width}}{second}".rstrip() for first, second in pairs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the picture."""
    parser = argparse.ArgumentParser(prog="python -m shardlab.proofs.causal_work")
    parser.add_argument("--ranks", type=int, default=4, choices=range(1, 9), metavar="1..8")
    print(draw_both_cuts(parser.parse_args(arguments).ranks))


if __name__ == "__main__":
    main()
