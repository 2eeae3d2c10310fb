"""Lab 00: what its one command prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pages.blocks import LANGUAGES, fence, fill_blocks, lab_page
from pages.programs import FFN, run

LAB = "00-ffn-by-hand"


def render() -> Iterator[tuple[Path, str]]:
    """Yield the lab's page in each language."""
    printed = fence(run(FFN).rstrip())
    for language in LANGUAGES:
        page = lab_page(LAB, language)
        yield page, fill_blocks(page, {"ffn.py": printed})
