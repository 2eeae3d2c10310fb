"""Lab 05: what its program prints of corpora, right and broken."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from click.testing import CliRunner

from pages.blocks import LANGUAGES, ROOT, fence, fill_blocks, lab_page
from pages.programs import script
from shardlab.data.__main__ import main

LAB = "05-from-text-to-the-batch"
FILES = ROOT / "experiments" / "37-batches"


def command(*words: Any) -> str:
    """Return what `python -m shardlab.data` prints."""
    return CliRunner().invoke(main, [str(word) for word in words]).output.strip()


def build_corpora(folder: Path) -> Path:
    """Both corpora, of the English pages, and the three broken ones, as the page makes them."""
    for name in ("theory", "labs"):
        pages = sorted((ROOT / "docs" / name).glob("*.md"))
        texts = [page for page in pages if not page.name.endswith(".es.md")]
        command("build", "--lines", "--processes", 1, folder / name, *texts)
    tokens, index = (Path(f"{folder}/theory.{kind}").read_bytes() for kind in ("bin", "idx"))
    labs_tokens = Path(f"{folder}/labs.bin").read_bytes()
    wide = index[:17] + b"\4" + index[18:]
    for name, bin_bytes, right in (("cut", tokens[:1000], index), ("mixed", labs_tokens, index),
                              ("wide", tokens, wide)):  # fmt: skip
        Path(f"{folder}/{name}.bin").write_bytes(bin_bytes)
        Path(f"{folder}/{name}.idx").write_bytes(right)
    return folder


@cache
def program() -> ModuleType:
    """Return the lab's program."""
    return script(FILES / "batch.py")


def run_report(*names: str, folder: Path, **settings: Any) -> str:
    """Return the program's report of corpora in a folder."""
    prefixes = [str(folder / name) for name in names]
    return str(program().report(program().Settings(prefixes=prefixes, **settings)))


def blocks(folder: Path) -> dict[str, str]:
    """What the page shows."""
    refused = [command("verify", folder / name) for name in ("cut", "mixed", "wide")]
    refused.append(command("verify", folder / "theory", "--vocabulary", 128))
    weights = {"weights": [3.0, 1.0], "samples": 2000, "step": 3}
    texts = {
        "batch": run_report("theory", folder=folder, step=3),
        "refused": "\n".join(refused).replace(f"{folder}", ".."),
        "blend": run_report("theory", "labs", folder=folder, **weights).split("\n\n")[2],
    }
    return {name: fence(text) for name, text in texts.items()}


def normalize(text: str) -> str:
    """Return a text without what every edited page changes: numbers, and the text that is quoted.

    The corpora are the workbook's own pages.
    """
    lines = [
        re.sub(r"\d[\d,]*", "#", re.sub(r"""['"].*['"]$""", "''", line))
        for line in text.splitlines()
        if not line.startswith("  place")
    ]
    return "\n".join(" ".join(line.split()) for line in lines)


def render() -> Iterator[tuple[Path, str]]:
    """Yield the lab's page in each language."""
    with tempfile.TemporaryDirectory() as folder:
        texts = blocks(build_corpora(Path(folder)))
    for language in LANGUAGES:
        page = lab_page(LAB, language)
        yield page, fill_blocks(page, texts)
