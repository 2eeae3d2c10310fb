"""`python -m shardlab.proofs.causal_work`: who computes what under a causal mask, cut two ways.

A sequence is 2n chunks. A cell is the attention of a chunk of queries (down) to a chunk of keys
(across), and says which rank computes it: the one that has the queries. Cells in the future are
nobody's; one on the diagonal is half a cell.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from shardlab.context.zigzag import order

CUTS = {"in runs": False, "zig-zag": True}


def owners(ranks: int, *, balanced: bool) -> list[int]:
    """Return which rank has each of the 2n chunks."""
    has = order(2 * ranks, ranks).tolist() if balanced else range(2 * ranks)
    return [place // 2 for _, place in sorted((chunk, at) for at, chunk in enumerate(has))]


def work(ranks: int, *, balanced: bool) -> list[float]:
    """Return how many cells each rank computes."""
    cells = [0.0] * ranks
    for chunk, rank in enumerate(owners(ranks, balanced=balanced)):
        cells[rank] += chunk + 0.5
    return cells


def text(ranks: int) -> str:
    """Return both cuts side by side, and what each rank computes."""
    columns = []
    for name, balanced in CUTS.items():
        has, cells = owners(ranks, balanced=balanced), work(ranks, balanced=balanced)
        rows = [f"{name}: " + " ".join(map(str, has)), ""]
        rows += [
            f"{chunk:>3}  " + " ".join([str(rank)] * (chunk + 1) + ["·"] * (2 * ranks - chunk - 1))
            for chunk, rank in enumerate(has)
        ]
        rows += [""] + [f"rank {rank}: {each:4.1f} cells" for rank, each in enumerate(cells)]
        rows += [f"the slowest: {max(cells) * ranks / sum(cells):.2f} of the mean"]
        columns.append(rows)
    width = max(map(len, columns[0])) + 4
    pairs = zip(*columns, strict=True)
    return "\n".join(f"{left:<{width}}{right}".rstrip() for left, right in pairs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the picture."""
    parser = argparse.ArgumentParser(prog="python -m shardlab.proofs.causal_work")
    parser.add_argument("--ranks", type=int, default=4, choices=range(1, 9), metavar="1..8")
    print(text(parser.parse_args(arguments).ranks))


if __name__ == "__main__":
    main()
