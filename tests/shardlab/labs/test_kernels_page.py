"""The reference page of shardlab: its map is whole; each file and test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pages.blocks import LANGUAGES, ROOT

SHARDLAB = ROOT / "tools" / "shardlab"
MAP = {"en": "## What is where", "es": "## Qué está dónde"}


def text(language: str) -> str:
    ending = "" if language == "en" else f".{language}"
    return (ROOT / "docs" / "reference" / f"kernels{ending}.md").read_text("utf-8")


def parts() -> set[str]:
    """What stands directly in shardlab: `grid` for a file, `comm/` for a folder."""
    files = {path.stem for path in SHARDLAB.glob("*.py")} - {"__init__"}
    return files | {f"{path.parent.name}/" for path in SHARDLAB.glob("*/__init__.py")}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_map_names_each_file_and_folder_once_and_nothing_else(language: str) -> None:
    section = text(language).split(MAP[language])[1].split("\n## ")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")][2:]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(named) == sorted(parts())


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_test_that_the_page_names_exists(language: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", text(language)))
    assert len(named) > 15
    existing = {path.stem for path in Path(__file__).parents[1].rglob("test_*.py")}
    assert named <= existing, named - existing
