"""Makes files in the formats of other programs; their numbers follow a known line."""

import json
from collections.abc import Sequence

LATENCY, PER_BYTE = 30e-6, 1e-10  # seconds, seconds a byte
SIZES = [1 << power for power in range(10, 30, 2)]
TIMES = [round((LATENCY + PER_BYTE * size) * 1e6, 2) for size in SIZES]  # microseconds
COLUMNS = ("size", "count", "type", "redop", "root")
GROUP = ("time", "algbw", "busbw", "#wrong")


def nccl_text(
    name: str = "all_reduce",
    *,
    ranks: int = 2,
    columns: tuple[str, ...] = COLUMNS,
    group: tuple[str, ...] = GROUP,
    cells: tuple[str, ...] = ("float", "sum", "-1"),
    only_in_place: bool = False,
    after: tuple[str, ...] = (),
    wrong: str = "0",
    times: Sequence[float | str] = TIMES,
    second: str = "",
    busbw: str = "1.50",
    pad: int = 0,
) -> str:
    lines = [f"# Collective test starting: {name}_perf", "#", "# Using devices"]
    lines += [
        f"#  Rank {rank:2} Group  0 Pid  {7 + rank} on there device {rank} [0000:0{rank}:00] a GPU"
        for rank in range(ranks)
    ]
    lines += ["#", "#   out-of-place   in-place", "# " + "  ".join([*columns, *group, *group])]
    lines += ["#   (B)  (elements)  (us)  (GB/s)  (GB/s)"]
    for size, time in zip(SIZES, times, strict=True):
        out = [] if only_in_place else [f"{time}", "1.00", busbw, wrong]
        into = [second or f"{float(time) * 2:.2f}", "1.0", busbw, "N/A"]
        words = [str(size).rjust(pad), str(size // 4), *cells, *out, *into]
        lines.append("  ".join([*words, *after]))
    return "\n".join(
        [*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth : 1.5", "#", ""]
    )


def nccl_json(*, ranks: int = 2, time: str = "time", wrong: float | None = 0.0) -> str:
    def way(micro: float) -> dict[str, float | None]:
        return {time: micro, "alg_bw": 1.0, "bus_bw": 1.5, "nwrong": wrong}

    rows = [
        {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
         "out_of_place": way(micro), "in_place": None, "actual_iterations": 20}
        for size, micro in zip(SIZES, TIMES, strict=True)
    ]  # fmt: skip
    devices = [{"rank": rank, "device_info": "a GPU"} for rank in range(ranks)]
    whole = {"version": 3, "args": ["/opt/all_reduce_perf", "-J"], "config": {"devices": devices}}
    return json.dumps(whole | {"results": rows, "errors": []})


def csv_of(head: str = "bytes,us", scale: float = 1.0) -> str:
    rows = (f"{size},{time * scale!r}" for size, time in zip(SIZES, TIMES, strict=True))
    return "\n".join([head, *rows, ""])
