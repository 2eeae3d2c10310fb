"""The site is built without torch: its figures use only shardlab's arithmetic."""

from __future__ import annotations

import sys

from tests.running import run_program


def test_the_figures_import_no_torch() -> None:
    loads = "import sys, sitelab.figures; print('torch' in sys.modules)"
    answer = run_program([sys.executable, "-c", loads], check=True)
    assert answer.stdout == "False\n"
