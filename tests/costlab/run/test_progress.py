"""A run shows a board on a terminal, whose last state stays; elsewhere it prints lines."""

from __future__ import annotations

import io

from rich.console import Console

from costlab.run.progress import Board, Plain


def test_the_board_says_how_each_section_ended_and_where_one_is() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system=None, width=100)
    with Board(console, ["collectives", "tp", "fsdp", "counts"]) as board:
        board.begin("collectives")
        board.end("collectives", "12 metrics", well=True)
        board.begin("tp")
        board.end("tp", "ranks [0, 1] disagree", well=False)  # no markup of rich's
        board.begin("fsdp")
        board.step("round 3 of 18")
    *_, collectives, tp, fsdp, counts, _ = screen.getvalue().splitlines()  # the cursor is shown
    assert "✓ collectives" in collectives and "12 metrics" in collectives
    assert "✗ tp" in tp and "ranks [0, 1] disagree" in tp
    assert "… fsdp" in fsdp and "round 3 of 18" in fsdp
    assert "· counts" in counts


def test_lines_say_what_begins_and_what_broke_off() -> None:
    lines = io.StringIO()
    plain = Plain(lines)
    plain.begin("tp")
    plain.step("round 1 of 2")  # too soon after the last line
    plain.end("tp", "rank 1 died", well=False)
    assert lines.getvalue().splitlines() == ["tp …", "tp: BROKE OFF: rank 1 died"]
