"""The bench: what `tools/bench fit` prints of a published sweep."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from click.testing import CliRunner

from costlab.cli import bench
from costlab.record import words
from pages.blocks import LANGUAGES, ROOT, in_language

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
        with patch.object(words, "PIPED", 80):
            done = CliRunner().invoke(bench, ["fit", str(file), *COMMAND.split()[3:]])
    return "\n".join(line.rstrip() for line in done.output.strip().splitlines()) + "\n"


def render() -> Iterator[tuple[Path, str]]:
    """Yield the page in each language."""
    output = run_command()
    for language in LANGUAGES:
        path = in_language("docs/reference/bench", language)
        yield path, _BLOCK.sub(lambda match: f"{match[1]}{output}```", path.read_text("utf-8"))
