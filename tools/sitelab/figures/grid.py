"""The figure of the process grid: ranks in hosts, and the groups of one of them."""

from pathlib import Path
from typing import Any, NamedTuple

from shardlab.grid.layout import TOKENS, Layout
from sitelab.figures.embed import Figure, make_control, render_template

SIZES = (1, 2, 4, 8)
HOSTS = (4, 8)
ORDERS = (
    "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "cp-tp-ep-dp-pp", "dp-tp-cp-ep-pp", "pp-tp-cp-ep-dp",
    "pp-dp-ep-cp-tp",
)  # fmt: skip
MOST = 64  # ranks that are drawn
INITIAL: dict[str, Any] = {
    "tensor": 2, "context": 1, "pipeline": 2, "data": 2, "expert": 1,
    "order": ORDERS[0], "host": 4,
}  # fmt: skip
RANK = 5  # whose groups are shown first: the example of theory 4
DENSE = ("tensor", "context", "data", "pipeline")
# The rows of the table: the axes of a group, and whether they are the experts'.
ROWS = {
    **{name: (TOKENS[name], False) for name in DENSE},
    "replicas": ("dp-cp", False),
    "experts": ("ep", True),
    "expert-data": ("dp", True),
}


class Row(NamedTuple):
    """A kind of group: that of one rank, how many there are, and how many are inside a host."""

    name: str
    group: list[int]
    groups: int
    inside: int


def make_layouts(at: dict[str, Any]) -> tuple[Layout, Layout]:
    """Return the layout of the dense layers and that of the experts.

    Raises:
        ValueError: Megatron and shardlab refuse the experts on this grid.
    """
    dense = Layout(**{name: at[name] for name in (*DENSE, "order")})
    return dense, dense.for_experts(at["expert"])


def count_groups(at: dict[str, Any], rank: int) -> list[Row]:
    """Return the rows of the figure's table."""
    layouts = make_layouts(at)
    rows = []
    for name, (tokens, of_experts) in ROWS.items():
        groups = layouts[of_experts].groups(tokens)
        inside = sum(group[0] // at["host"] == group[-1] // at["host"] for group in groups)
        group = layouts[of_experts].group_of(rank, tokens)
        rows.append(Row(name, group, len(groups), inside))
    return rows


def make_figure(words: dict[str, str], root: Path) -> Figure:
    """Return one grid with the groups of a rank, and the data for any other."""
    layout, _ = make_layouts(INITIAL)
    rows = count_groups(INITIAL, RANK)
    hosts = [
        range(first, first + INITIAL["host"])
        for first in range(0, layout.world_size, INITIAL["host"])
    ]
    peers = {
        rank: [row.name for row in rows if row.name in DENSE and rank in row.group]
        for rank in range(layout.world_size)
        if rank != RANK
    }
    places = {rank: layout.coordinates(rank) for rank in range(layout.world_size)}
    html = render_template(
        "grid", words, hosts=hosts, rows=rows, peers=peers, chosen=RANK, places=places,
        cut=[name for name in DENSE if INITIAL[name] > 1],
    )  # fmt: skip
    return Figure(html, {
        "tokens": TOKENS,
        "rows": [[name, tokens.split("-"), of_experts]
                 for name, (tokens, of_experts) in ROWS.items()],
        "rank": RANK,
        "most": MOST,
        "controls": _make_controls(words),
    })  # fmt: skip


def _make_controls(words: dict[str, str]) -> list[Any]:
    sizes = ("tensor", "context", "pipeline", "data", "expert")
    named = words | {"host": words["of-host"]}
    return [
        *(make_control("slider", name, words, INITIAL[name], SIZES) for name in sizes),
        make_control("choice", "order", words, INITIAL["order"], ORDERS),
        make_control("slider", "host", named, INITIAL["host"], HOSTS),
    ]
