"""On a machine without a browser its tests are skipped, and one line says what to install."""

import os
import sys
from pathlib import Path

import pytest

from tests.running import run_program

ROOT = Path(__file__).parents[2]


@pytest.mark.ci
def test_without_a_browser_one_line_says_how_to_get_one(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "SHARDBOOK_EXPECT_NO_SKIPS"}
    files = ["tests/site/pages/test_recall_cards.py", "tests/site/test_browser.py"]
    done = run_program(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-m",
            "browser and not ci",
            *files,
        ],
        cwd=ROOT,
        env={**environment, "PATH": str(tmp_path), "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "chromium" in line]
    assert "apt-get install chromium" in line
    assert "playwright install chromium" in line
    assert "passed" not in done.stdout
