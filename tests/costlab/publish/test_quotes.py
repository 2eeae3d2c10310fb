"""A new reference updates the numbers that pages quote, and lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from costlab.publish import generate


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    lab = tmp_path / "experiments" / "35-costs"
    (lab / "results").mkdir(parents=True)
    table = "id,value,formatted\ntp.h128.slowdown.shardlab.gloo,1.3127,1.31×\n"
    (lab / "results/reference.csv").write_text(table, "utf-8")
    return lab


def write_page(lab: Path, text: str, name: str = "note.md") -> Path:
    path = lab.parent / name
    path.write_text(text, "utf-8")
    return path


def test_a_quoted_number_becomes_its_rows_in_its_language(lab: Path) -> None:
    row = "tp-h128-slowdown-shardlab-gloo"
    text = f"slower by [1.2×](35-costs/RESULTS{{}}.md#{row}), said [twice](x.md#y)\n"
    english = write_page(lab, "first\n" + text.format(""))
    spanish = write_page(lab, text.format(".es"), "note.es.md")
    first, second = generate.update(lab, [english, spanish])
    assert english.read_text("utf-8") == "first\n" + text.format("").replace("1.2×", "1.31×")
    assert spanish.read_text("utf-8") == text.format(".es").replace("1.2×", "1.31×")
    assert str(first) == f"{english}:2 quotes tp-h128-slowdown-shardlab-gloo: 1.2×, now 1.31×"
    assert second.after == "1.31×"


def test_what_is_right_or_has_no_row_stays(lab: Path) -> None:
    text = (
        "[1.31×](35-costs/RESULTS.md#tp-h128-slowdown-shardlab-gloo) "
        "[5×](35-costs/RESULTS.md#gone) "
        "[6×](other/RESULTS.md#tp-h128-slowdown-shardlab-gloo)\n"
    )
    path = write_page(lab, text)
    before = path.stat().st_mtime_ns
    assert generate.update(lab, [path]) == []
    assert path.read_text("utf-8") == text
    assert path.stat().st_mtime_ns == before
