"""A reference is complete, and replaces another only if its pages can be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from costlab.judge.claims_file import ClaimsError
from costlab.publish.generate import adopt
from costlab.record.result import Load, Result, ResultError, Section, save
from costlab.sections import plan
from tests.costlab.tiny_run import make_lab


def make_whole_result(**replaced: Section | None) -> Result:
    """Return a result in which every section is complete and empty, except the replaced ones."""
    sections = dict.fromkeys(plan.MODULES, Section(status="complete")) | replaced
    return Result(sections={name: section for name, section in sections.items() if section})


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (Result(), "it has no section collectives"),
        (make_whole_result(tp=None), "it has no section tp; a reference is whole"),
        (make_whole_result(tp=Section(note="rank 1 was killed")),
         "tp broke off: rank 1 was killed"),
        (make_whole_result(tp=Section()), "tp broke off"),
        (make_whole_result(tp=Section(status="complete", load=Load(rounds=3, spoiled=2))),
         "a busy machine"),
        (make_whole_result(tp=Section(status="cut", load=Load(rounds=3, missing_rounds=2))),
         "tp was cut short when the time was up .*--resume"),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_refused_and_the_reference_stays(
    tmp_path: Path, result: Result, words: str
) -> None:
    folder = make_lab(tmp_path / "lab", {})
    before = (folder / "results/reference.json").read_bytes()
    save(result, tmp_path / "new.json")
    with pytest.raises(ResultError, match=words):
        adopt(tmp_path / "new.json", folder)
    assert (folder / "results/reference.json").read_bytes() == before


def test_claims_that_cannot_be_read_leave_the_reference(tmp_path: Path) -> None:
    folder = make_lab(tmp_path / "lab", {})
    before = (folder / "results/reference.json").read_bytes()
    (folder / "claims.toml").write_text("x = [")
    save(make_whole_result(), tmp_path / "new.json")
    with pytest.raises(ClaimsError):
        adopt(tmp_path / "new.json", folder)
    assert (folder / "results/reference.json").read_bytes() == before
