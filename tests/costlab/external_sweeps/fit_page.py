"""Writes the part of the bench page about `tools/bench fit`.

Run it as `python -m tests.costlab.external_sweeps.fit_page`.
"""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from click.testing import CliRunner

from costlab.cli import bench
from costlab.record import terminal
from costlab.record.options import ROOT

PAGES = [ROOT / "docs" / "reference" / name for name in ("bench.md", "bench.es.md")]
COMMAND = "tools/bench fit all_reduce.csv --at 1G"
PUBLISHED = ROOT / "tests" / "costlab" / "data" / "nccl-h100-16.json"
MOST = 64 << 20  # bytes, where the example is cut off
_BLOCK = re.compile(rf"(```text\n\$ {re.escape(COMMAND)}\n)(.*?)```", re.DOTALL)


def run_command() -> str:
    """Return the command's output for the published sweep up to 64 MiB."""
    sweep = json.loads(PUBLISHED.read_text())
    few = [(size, us) for size, us in sweep["rows"] if size <= MOST]
    rows = [f"all_reduce,{sweep['ranks']},{size},{us}" for size, us in few]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "all_reduce.csv"
        file.write_text("\n".join(["operation,ranks,bytes,us", *rows]))
        with patch.object(terminal, "PIPED", 80):
            done = CliRunner().invoke(bench, ["fit", str(file), *COMMAND.split()[3:]])
    return "\n".join(line.rstrip() for line in done.output.strip().splitlines()) + "\n"


def read_block(page: Path) -> str:
    """Return the block of the page that shows this output."""
    ((_, block),) = _BLOCK.findall(page.read_text("utf-8"))
    return str(block)


if __name__ == "__main__":
    for page_path in PAGES:
        page_path.write_text(
            _BLOCK.sub(rf"\1{run_command()}```", page_path.read_text("utf-8")), "utf-8"
        )
