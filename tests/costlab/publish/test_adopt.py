"""A reference is whole, and replaces another only where its pages can be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from costlab.judge.claims import ClaimsError
from costlab.publish.generate import adopt
from costlab.record.result import Load, Result, ResultError, Section, save
from costlab.sections import plan
from tests.costlab.tiny_run import lab


def whole(**instead: Section | None) -> Result:
    """Every section, complete and empty, but for some."""
    sections = dict.fromkeys(plan.MODULES, Section(status="complete")) | instead
    return Result(sections={name: one for name, one in sections.items() if one})


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (Result(), "it has no section collectives"),
        (whole(tp=None), "it has no section tp; a reference is whole"),
        (whole(tp=Section(note="rank 1 was killed")), "tp broke off: rank 1 was killed"),
        (whole(tp=Section()), "tp broke off"),
        (whole(tp=Section(status="complete", load=Load(rounds=3, spoiled=2))), "a busy machine"),
    ],
)
def test_what_is_not_whole_is_refused_and_the_reference_stays(
    tmp_path: Path, result: Result, words: str
) -> None:
    folder = lab(tmp_path / "lab", {})
    before = (folder / "results/reference.json").read_bytes()
    save(result, tmp_path / "new.json")
    with pytest.raises(ResultError, match=words):
        adopt(tmp_path / "new.json", folder)
    assert (folder / "results/reference.json").read_bytes() == before


def test_claims_that_cannot_be_read_leave_the_reference(tmp_path: Path) -> None:
    folder = lab(tmp_path / "lab", {})
    before = (folder / "results/reference.json").read_bytes()
    (folder / "claims.toml").write_text("x = [")
    save(whole(), tmp_path / "new.json")
    with pytest.raises(ClaimsError):
        adopt(tmp_path / "new.json", folder)
    assert (folder / "results/reference.json").read_bytes() == before
