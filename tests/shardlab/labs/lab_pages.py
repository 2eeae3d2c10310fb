"""What the labs' pages show of a run, between `<!-- NAME -->` and `<!-- /NAME -->`.

Tests hold each block to what a run gives now; `python -m tests.shardlab.labs.lab_pages` writes
them all anew, in both languages.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from tests.limits import LIMIT

ROOT = Path(__file__).resolve().parents[3]
LANGUAGES = ("en", "es")
FFN = ROOT / "experiments" / "35-ffn-by-hand" / "ffn.py"
TRAIN = ROOT / "experiments" / "35-three-d" / "train.py"
ROUTE = ROOT / "experiments" / "36-experts" / "route.py"


def script(path: Path) -> ModuleType:
    """Import a lab's script, which finds what lies beside it as it does when it is run."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    return importlib.import_module(path.stem)


def run(path: Path, *arguments: str, ranks: int = 0, **environment: str) -> str:
    """Run a lab's script, under torchrun where `ranks` are given; return what it prints."""
    launch = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}"] if ranks else []
    done = subprocess.run(
        [sys.executable, *launch, str(path), *arguments],
        capture_output=True,
        check=False,  # below, with what was printed
        text=True,
        encoding="utf-8",
        timeout=LIMIT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1", **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def page(lab: str, language: str) -> Path:
    """Where a lab's page stands."""
    ending = "" if language == LANGUAGES[0] else f".{language}"
    return ROOT / "docs" / "labs" / f"{lab}{ending}.md"


def answers(lab: str, language: str) -> Path:
    """Where the answers to its exercises stand."""
    return ROOT / "solutions" / page(lab, language).name


def shown(path: Path, block: str) -> str:
    """Return what a page shows between the block's marks."""
    _, text, _ = _parts(path, block)
    return text.rstrip("\n")


def write(path: Path, blocks: Mapping[str, str]) -> None:
    """Put each text between its block's marks."""
    for block, new in blocks.items():
        before, _, after = _parts(path, block)
        path.write_text(f"{before}{new}\n{after}", "utf-8")


def table(head: list[str], align: str, rows: list[list[str]]) -> str:
    """Return a Markdown table; `align` has one of `<` and `>` for each column."""
    rules = ["--:" if side == ">" else "---" for side in align]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rules, *rows])


def python_blocks(path: Path) -> list[str]:
    """Return a page's Python, block by block."""
    return re.findall(r"^```python\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S)


def _parts(path: Path, block: str) -> tuple[str, str, str]:
    """Cut a page after the block's first mark and before its second."""
    text, mark = path.read_text("utf-8"), re.escape(block)
    match = re.search(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- /{mark} -->)", text, re.S)
    assert match, f"{path} has no <!-- {block} --> and <!-- /{block} --> on lines of their own"
    return text[: match.start()], match[0], text[match.end() :]


def main() -> None:
    """Run the labs and write what they show."""
    from tests.shardlab.data import test_data_in_theory
    from tests.shardlab.labs import (
        test_evening,
        test_lab_00,
        test_lab_00b,
        test_lab_01,
        test_lab_04,
        test_lab_05,
    )  # fmt: skip
    from tests.shardlab.pool import Pool

    pools: dict[int, Pool] = {}
    try:
        test_evening.pages()
        test_data_in_theory.pages()
        test_lab_05.pages()
        test_lab_00.pages()
        test_lab_00b.pages()
        test_lab_01.pages(lambda size: pools.setdefault(size, Pool(size)))
        test_lab_04.pages(lambda size: pools.setdefault(size, Pool(size)))
    finally:
        for each in pools.values():
            each.stop()


if __name__ == "__main__":
    main()
