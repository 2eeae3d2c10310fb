"""The site is built without torch: its figures use only shardlab's arithmetic."""

from __future__ import annotations

import subprocess
import sys

from tests.limits import LIMIT


def test_the_figures_import_no_torch() -> None:
    loads = "import sys, sitelab.figures.makers; print('torch' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", loads], capture_output=True, text=True, check=True, timeout=LIMIT
    )
    assert answer.stdout == "False\n"
