"""`check --fix`: what is certain is proposed as a diff, and written with --write."""

from pathlib import Path

import msgspec
import pytest

from notelab.check import check_labs
from notelab.commands import fixing
from notelab.errors import NotelabError
from notelab.files import JOURNAL
from notelab.lab import lock as lock_file
from tests.notelab.page.test_citation_forms import PERMALINK, WORK, Lab, lab, self_citing_lab
from tests.notelab.scratch import commit_all

__all__ = ["lab", "self_citing_lab"]


def fix(lab: Lab, form: str, *, style: str = "") -> str:
    """Write a form into the note, fix it, and return the sentence's end that was written."""
    lab_file = lab.folder / "lab.toml"
    text = lab_file.read_text().replace('style = "canonical"\n', "")
    lab_file.write_text(text.replace("[lab]\n", f"[lab]\n{style}", 1))
    lab.write(f"The name `add_one` is shown by {form}")
    before = lab.folder.joinpath("note.md").read_text()
    diff = fixing.fix({lab.folder: None}, lab.bench(), write=False)
    assert lab.folder.joinpath("note.md").read_text() == before
    assert bool(fixing.fix({lab.folder: None}, lab.bench(), write=True)) == bool(diff)
    after = lab.folder.joinpath("note.md").read_text()
    assert bool(diff) == (after != before)
    return after.partition("is shown by ")[2].strip().replace(lab.commit, "@SHA@")


FIXED = [
    ("`pkg/work.py:L6-L4`", "`pkg/work.py:L4-L6`"),
    ("`pkg/work.py`, lines 6–4,", "`pkg/work.py`, lines 4–6,"),
    ("`work.py:4-6`", "`pkg/work.py:4-6`"),
    ("`work.py` (lines 4-6) and more", "`pkg/work.py` (lines 4-6) and more"),
    ("`work.py#add_one`", "`pkg/work.py#add_one`"),
    (f"[`work.py:9`]({PERMALINK}/work.py#L4-L6)", f"[`work.py:4-6`]({PERMALINK}/work.py#L4-L6)"),
    (f"[the lines 9-11]({PERMALINK}/work.py#L4)", f"[the lines 4]({PERMALINK}/work.py#L4)"),
    (f"[`other.py`]({PERMALINK}/work.py#L4-L6)", f"[`work.py`]({PERMALINK}/work.py#L4-L6)"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "fixed"), FIXED)
def test_what_is_certain_is_written(lab: Lab, form: str, fixed: str) -> None:
    assert fix(lab, form) == fixed


UNCERTAIN = [
    "`pkg/work.py:L600-L4`", "`pkg/work.py:4-6`", "`none.py:4-6`",
    f"[`work.py:9`]({PERMALINK}/gone.py#L4-L6)", "`pkg/work.py:L9000`", "`pkg/work.py#nothing`",
]  # fmt: skip


@pytest.mark.parametrize("form", UNCERTAIN)
def test_what_is_not_certain_stays(lab: Lab, form: str) -> None:
    assert fix(lab, form) == form


CANONICAL = [
    ("`pkg/work.py:4-6`", "`pkg/work.py:L4-L6`"),
    ("`work.py:1-3, 4 and 9-11`,", "`pkg/work.py:L1-L3`, `pkg/work.py:L4`, `pkg/work.py:L9-L11`,"),
    ("pkg/work.py:4:7.", "`pkg/work.py:L4`."),
    ("`work.py` (lines 4-6).", "`pkg/work.py:L4-L6`."),
    ("lines 4 to 6 of `work.py`", "`pkg/work.py:L4-L6`"),
    ("`pkg/work.py#add_one`", "`pkg/work.py:L4-L6`"),
    (f"<{PERMALINK}/work.py#L4-L6>", "`s:pkg/work.py:L4-L6`"),
    (f"{PERMALINK}/work.py#L4-L6.", "`s:pkg/work.py:L4-L6`."),
    (f"[`work.py:4`]({PERMALINK}/work.py#L4-L6)", "`s:pkg/work.py:L4-L6`"),
    (f"[this code]({PERMALINK}/work.py#L4-L6)", "this code (`s:pkg/work.py:L4-L6`)"),
    (f'<a href="{PERMALINK}/work.py#L4-L6">it</a>', f'<a href="{PERMALINK}/work.py#L4-L6">it</a>'),
    (
        f"[this code][code] or [Code]\n\n[code]: <{PERMALINK}/work.py#L4-L6>\n[x]: a.md",
        "this code (`s:pkg/work.py:L4-L6`) or Code (`s:pkg/work.py:L4-L6`)\n\n[x]: a.md",
    ),
    (
        f"[this][code] ![code]\n\n[code]: {PERMALINK}/work.py#L4",
        f"this (`s:pkg/work.py:L4`) ![code]\n\n[code]: {PERMALINK}/work.py#L4",
    ),
]


@pytest.mark.parametrize(("form", "fixed"), CANONICAL)
def test_a_lab_that_asks_for_one_form_gets_it(lab: Lab, form: str, fixed: str) -> None:
    assert fix(lab, form, style='style = "canonical"\n') == fixed
    assert "N233" not in {finding.code for finding in lab.check().findings} or "href" in form


def slip(lab: Lab) -> None:
    """Insert two lines above the cited ones, and pin that commit by hand."""
    work = lab.source / "pkg/work.py"
    work.write_text(work.read_text().replace("\n\n\n", "\n\nimport math\n\n\n", 1))
    lab.commit = commit_all(lab.source, "slipped")
    lab.folder.joinpath("s-sha.txt").write_text(f"{lab.commit}\n")


def test_lines_that_the_lock_finds_elsewhere_are_cited_there_and_locked(lab: Lab) -> None:
    assert lab.judge("`pkg/work.py:4-6`, twice `pkg/work.py:4-6`").findings == []
    old = lock_file.load(lab.folder / "citations.lock")
    slip(lab)
    assert fix(lab, "`pkg/work.py:4-6`, twice `pkg/work.py:4-6`").count(":6-8`") == 2
    new = lock_file.load(lab.folder / "citations.lock")
    assert old and new and list(new.citations["s"]) == ["pkg/work.py:L6-L8"]
    assert [*new.citations["s"].values()] == [*old.citations["s"].values()]


def test_a_range_that_moves_to_where_another_was_leaves_both_locked(lab: Lab) -> None:
    form = "`pkg/work.py:L1` and `pkg/work.py:L4, L6`"
    assert "N210" not in {finding.code for finding in lab.judge(form).findings}
    old = lock_file.load(lab.folder / "citations.lock")
    slip(lab)
    assert fix(lab, form) == "`pkg/work.py:L1` and `pkg/work.py:L6, L8`"
    new = lock_file.load(lab.folder / "citations.lock")
    assert old and new
    hashes = [[entry.sha256 for entry in lock.citations["s"].values()] for lock in (old, new)]
    assert hashes[0] == hashes[1]


def test_text_that_is_at_two_places_is_not_certain(lab: Lab) -> None:
    assert lab.judge("`pkg/work.py:4-6`").findings == []
    slip(lab)
    work = lab.source / "pkg/work.py"
    work.write_text(work.read_text() + work.read_text())
    lab.commit = commit_all(lab.source, "doubled")
    lab.folder.joinpath("s-sha.txt").write_text(f"{lab.commit}\n")
    assert fix(lab, "`pkg/work.py:4-6`") == "`pkg/work.py:4-6`"


def test_ranges_that_part_into_two_files_stay_with_their_lock(self_citing_lab: Lab) -> None:
    """One path can't serve both, so neither the page nor the lock says anything new."""
    lab = self_citing_lab
    lab_file = lab.folder / "lab.toml"
    lab_file.write_text(lab_file.read_text().replace("s-sha.txt", "HEAD"))
    form = "`pkg/work.py:4-6, 9-11`, as `add_two` is"
    assert lab.judge(form).findings == []
    locked = lab.folder.joinpath("citations.lock").read_bytes()
    opening, first, second = WORK.split("\n\n\n")
    lab.folder.parent.joinpath("pkg/work.py").write_text(f"{opening}\n\n\n{second}")
    lab.folder.parent.joinpath("pkg/first.py").write_text(f"{first}\n")
    assert fix(lab, form) == form
    assert lab.folder.joinpath("citations.lock").read_bytes() == locked
    findings = check_labs({lab.folder: None}, lab.bench()).findings
    assert [finding.code for finding in findings] == ["N218", "N218"]
    assert not any("--fix" in finding.help for finding in findings)  # it would change nothing


def test_a_failed_write_leaves_each_file_old(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.write("`add_one` is `work.py:4-6`")
    before = {path.name: path.read_bytes() for path in lab.folder.iterdir()}

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(NotelabError, match="cannot be written"):
        fixing.fix({lab.folder: None}, lab.bench(), write=True)
    assert {path.name: path.read_bytes() for path in lab.folder.iterdir()} == before


def test_what_a_killed_run_left_is_written_first(lab: Lab) -> None:
    lab.write("`add_one` is `work.py:4-6`")
    note = lab.folder / "note.md"
    page = note.read_bytes().replace(b"Forms\n\n`add", b"Forms\n\nFirst. `add")
    files = {"lab/note.md": page}
    (lab.root / JOURNAL).write_bytes(msgspec.json.encode(files))
    fixing.fix({lab.folder: None}, lab.bench(), write=True)
    assert b"First. `add_one` is `pkg/work.py:4-6`" in note.read_bytes()
    assert not (lab.root / JOURNAL).exists()


def test_a_page_with_windows_line_ends_keeps_them(lab: Lab) -> None:
    lab.write("`add_one` is `work.py:4-6`")
    note = lab.folder / "note.md"
    note.write_bytes(note.read_bytes().replace(b"\n", b"\r\n"))
    fixing.fix({lab.folder: None}, lab.bench(), write=True)
    assert b"`pkg/work.py:4-6`\r\n" in note.read_bytes()
