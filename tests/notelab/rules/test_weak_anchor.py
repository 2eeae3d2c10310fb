"""An anchor that stands everywhere near by is none; one that is rare there anchors."""

import pytest

from notelab.cited import nearest_range, outline
from tests.notelab.scratch import Scratch

SOURCE = "def run(state):\n" + "".join(f"    state = step_{n}(state, common)\n" for n in range(30))


@pytest.fixture
def crowded(scratch: Scratch) -> Scratch:
    """A lab that pins a file whose every line holds `state` and `common`."""
    scratch.upstream.joinpath("pkg/scaler.py").write_text(SOURCE)
    scratch.release({"`uses`": "`common`", "`combine`": "`step_21`", "L22-L25": "L23"})
    scratch.lock()
    return scratch


def test_a_name_of_every_statement_is_refused_and_better_ones_named(crowded: Scratch) -> None:
    findings = [finding for finding in crowded.check("note.md").findings if finding.code == "N215"]
    assert [finding.found for finding in findings] == ["the rarest, `common`, is in 28 of 29"] * 2
    assert "`step_12`" in findings[0].help and "`step_13`" in findings[0].help


def test_one_rare_name_among_common_ones_is_enough(crowded: Scratch) -> None:
    crowded.replace_both("`common`", "`common` after `step_12`")
    crowded.lock()
    assert crowded.codes() == []


def test_where_few_statements_are_near_nothing_is_judged() -> None:
    few = outline.of_file("a.py", b"common = 1\ncommon += 1\ncommon += 2\n")
    assert nearest_range.weakness(few, 2, 2, {"common"}) is None


def test_of_a_text_without_structure_the_lines_are_counted() -> None:
    data = b"common word\n" * 15 + b"common, and telling\n"
    plain = outline.of_file("a.md", data)
    weak = nearest_range.weakness(plain, 16, 16, {"common"})
    assert weak is not None and (weak.count, weak.statements, weak.better) == (15, 15, ["telling"])
    assert nearest_range.weakness(plain, 16, 16, {"common", "telling"}) is None
