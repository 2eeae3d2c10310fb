"""Stage: every operation of an axis, for each number of ranks; and what a lost rank leaves."""

import json
import re
import time

from costlab.gpu_report import ranks
from costlab.gpu_report.rows import seconds_left, tell


def main(device: str) -> None:
    """Try every number of ranks that this machine has, then lose one of two."""
    tried = ranks.counts(device)
    for count, shared in tried:
        where = f"{count} ranks" + (" on one GPU, through the host" if shared else "")
        began = time.monotonic()
        ended = ranks.run(
            count, ["-m", "costlab.gpu_report", "smoke_rank", device],
            limit=seconds_left(0.7) / 2,
        )  # fmt: skip
        values(where, ended)
        statuses = [rank.status for rank in ended]
        took = f"{time.monotonic() - began:.1f} s from start to end"
        tell(f"{where}: close", f"statuses {statuses}, {took}", ok=not any(statuses))
    count = max(count for count, _ in tried)
    if count > 1:
        lost(device, count)


def values(where: str, ended: list[ranks.Ended]) -> None:
    """Tell what the ranks' own checks said, an operation a row."""
    checked = [re.findall(r"^CHECKED (.*)$", rank.output, re.MULTILINE) for rank in ended]
    for index, line in enumerate(checked[0]):
        name, good, note = json.loads(line)
        for rank, lines in enumerate(checked):
            if index >= len(lines):
                good, note = False, f"rank {rank} never got here: {ended[rank].last}"
            elif not json.loads(lines[index])[1]:
                good, note = False, f"rank {rank}: {json.loads(lines[index])[2]}"
        tell(f"{where}: {name}", note, ok=good)
    if not checked[0] or "ended" not in checked[0][-1]:
        tell(f"{where}: to the end", ended[0].last, ok=False)


def lost(device: str, count: int) -> None:
    """Kill the last rank in the middle: every other one must name it, and end."""
    began = time.monotonic()
    ended = ranks.run(
        count, ["-m", "costlab.gpu_report", "smoke_rank", device, "lose"], limit=seconds_left(0.9)
    )
    took = time.monotonic() - began
    for rank, rank_end in enumerate(ended[:-1]):
        named = re.search(rf"rank {count - 1} (died|gave up|hangs)[^\n]*", rank_end.output)
        tell(
            f"rank {count - 1} of {count} is killed: rank {rank}",
            f"{named[0] if named else rank_end.last} "
            f"(status {rank_end.status}, all over in {took:.0f} s)",
            ok=bool(named) and rank_end.status not in (0, None),
        )
