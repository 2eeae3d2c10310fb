"""The training stage reports the result of a grid's ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from costlab.gpu_report import ranks, stages
from costlab.gpu_report.ranks import Ended


@pytest.mark.parametrize("status", [1, -9, None])
def test_a_rank_that_failed_or_hung_leaves_no_losses_though_the_first_wrote_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int | None
) -> None:
    file = tmp_path / "losses"

    def run(count: int, command: list[str], *, limit: float) -> list[Ended]:
        file.write_text("4.1\n4.0\n")
        return [Ended(0, ""), Ended(status, "")]

    monkeypatch.setattr(ranks, "run", run)
    assert stages.losses(2, ["--dp", "2"], file) == []


def test_ranks_that_ended_well_leave_their_losses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "losses"
    ended = [Ended(0, "")] * 2
    monkeypatch.setattr(ranks, "run", lambda *_, **__: file.write_text("4.1\n4.0\n") and ended)
    assert stages.losses(2, ["--dp", "2"], file) == [4.1, 4.0]
