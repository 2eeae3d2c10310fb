"""Everything that is generated from a lab's reference: figures, then the pages that show them."""

from __future__ import annotations

from pathlib import Path

from costlab.judge import claims
from costlab.publish import claims_page, results_page
from costlab.publish.figures import figures
from costlab.record.result import load


def generate(lab: Path) -> list[Path]:
    """Write figures, RESULTS and CLAIMS in both languages; return the files.

    Args:
        lab: the folder that holds results/reference.json and claims.toml.

    Raises:
        ResultError, ClaimsError: an input can't be read; nothing is half written.
    """
    claims.load(lab / claims_page.CLAIMS)  # before anything is replaced
    drawn = figures.write(load(lab / results_page.REFERENCE), lab)
    return [*drawn, *results_page.write(lab), *claims_page.write(lab)]
