"""What a stage finds, a row each, written down at once: a stage that is killed keeps its rows."""

import json
import os
import sys
import time
from pathlib import Path

FILE = "SHARDBOOK_ROWS"
SECONDS = "SHARDBOOK_SECONDS"
OUT = "SHARDBOOK_OUT"
_BEGAN = time.monotonic()


def tell(what: str, seen: object, *, ok: bool | None = None) -> None:
    """Write a row.

    Args:
        what: was tried or asked.
        seen: what came of it, in a line.
        ok: whether that is as it must be; None for what is only said.
    """
    row = {"what": what, "seen": " ".join(str(seen).split())[:400], "ok": ok}
    mark = {True: "ok", False: "FAILED", None: "-"}[ok]
    print(f"{time.monotonic() - _BEGAN:6.1f} s {mark:6} {what}: {row['seen']}", flush=True)
    if FILE in os.environ:
        with Path(os.environ[FILE]).open("a", encoding="utf-8") as rows:
            rows.write(json.dumps(row) + "\n")


def read(file: Path) -> list[dict[str, object]]:
    """Return the rows of a stage; the last may have been cut off."""
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"a row was cut off: {line[:60]}", file=sys.stderr)
    return rows


def seconds_left(share: float = 1.0) -> float:
    """Return how long this stage may still take, if it may take `share` of its time."""
    return float(os.environ.get(SECONDS, "600")) * share - (time.monotonic() - _BEGAN)
