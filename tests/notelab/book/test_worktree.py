"""`pin = "HEAD"`: citations of one's own working tree are held by their lock and follow it."""

import shutil
from pathlib import Path

import pytest

from notelab.book.discovery import select_labs
from notelab.check import check_labs
from notelab.commands import fixing, pinning
from notelab.errors import NotelabError
from notelab.finding import Finding
from notelab.lab.lab import load
from notelab.repin import migrate
from tests.notelab.page.test_citation_forms import WORK, Lab, self_citing_lab
from tests.notelab.scratch import commit_all, git

__all__ = ["self_citing_lab"]
NOTE = (
    "`add_one` adds (`pkg/work.py:4-6`). Twice two is what `add_two` computes: `work.py#add_two`."
)


@pytest.fixture
def worktree_lab(self_citing_lab: Lab) -> Lab:
    """Return a locked lab whose source is its own working tree."""
    lab_file = self_citing_lab.folder / "lab.toml"
    lab_file.write_text(lab_file.read_text().replace('"s-sha.txt"', '"HEAD"'))
    self_citing_lab.folder.joinpath("s-sha.txt").unlink()
    write(self_citing_lab, NOTE)
    assert self_citing_lab.check().findings == []
    commit_all(self_citing_lab.root)
    return self_citing_lab


def write(lab: Lab, text: str) -> None:
    lab.folder.joinpath("note.md").write_text(f"---\ntitle: Own\n---\n\n# Own\n\n{text}\n")


def edit(lab: Lab, old: str, new: str) -> None:
    work = lab.root / "pkg/work.py"
    assert old in work.read_text()
    work.write_text(work.read_text().replace(old, new, 1))


def check(lab: Lab) -> list[Finding]:
    """Check without locking again."""
    return check_labs({lab.folder: None}, lab.bench()).findings


def find(lab: Lab) -> list[tuple[str, str]]:
    """Check without locking again; return code and what was expected."""
    return [(finding.code, finding.expected) for finding in check(lab)]


def note(lab: Lab) -> str:
    return lab.folder.joinpath("note.md").read_text()


def test_an_edit_elsewhere_and_a_commit_change_no_verdict_or_lock(worktree_lab: Lab) -> None:
    lock = worktree_lab.folder.joinpath("citations.lock").read_text()
    edit(worktree_lab, "twice\n", "twice\n\n\ndef more():\n    return 3\n")
    assert find(worktree_lab) == []
    commit_all(worktree_lab.root, "more")
    assert find(worktree_lab) == []
    worktree_lab.check()
    assert worktree_lab.folder.joinpath("citations.lock").read_text() == lock


def test_code_that_moves_is_found_and_cited_where_it_is(worktree_lab: Lab) -> None:
    edit(worktree_lab, '"""Work."""\n', '"""Work."""\n\nimport math\n')
    assert find(worktree_lab) == [("N218", "`pkg/work.py:L6-L8`")]
    fixing.fix({worktree_lab.folder: None}, worktree_lab.bench(), write=True)
    assert "`pkg/work.py:6-8`" in note(worktree_lab) and "`pkg/work.py#add_two`" in note(
        worktree_lab
    )
    assert find(worktree_lab) == []


def test_a_quotation_of_lines_that_moved_waits_for_the_fix(worktree_lab: Lab) -> None:
    quotation = WORK[WORK.index("def add_one") : WORK.index("def add_two")].strip()
    write(worktree_lab, f"`add_one` is `pkg/work.py:4-6`:\n\n```python\n{quotation}\n```")
    assert worktree_lab.check().findings == []
    edit(worktree_lab, '"""Work."""\n', '"""Work."""\n\nimport math\n')
    assert find(worktree_lab) == [("N218", "`pkg/work.py:L6-L8`")]
    fixing.fix({worktree_lab.folder: None}, worktree_lab.bench(), write=True)
    assert find(worktree_lab) == []


def test_a_symbol_that_the_lock_holds_has_the_labs_own_form(worktree_lab: Lab) -> None:
    lab_file = worktree_lab.folder / "lab.toml"
    lab_file.write_text(lab_file.read_text().replace("[lab]", '[lab]\nstyle = "canonical"', 1))
    assert find(worktree_lab)[0] == ("N233", "`pkg/work.py:L4-L6`")
    fixing.fix({worktree_lab.folder: None}, worktree_lab.bench(), write=True)
    assert "`pkg/work.py:L4-L6`" in note(worktree_lab)
    assert "`pkg/work.py#add_two`" in note(worktree_lab) and find(worktree_lab) == []


def move_add_one(lab: Lab) -> None:
    """Move a function to another file."""
    function = WORK[WORK.index("def add_one") : WORK.index("def add_two")]
    edit(lab, function, "")
    lab.root.joinpath("lib").mkdir()
    lab.root.joinpath("lib/sums.py").write_text(f'"""Sums."""\n\n\n\n{function}')


def test_code_that_moves_to_another_file_is_found_there(worktree_lab: Lab) -> None:
    move_add_one(worktree_lab)
    (finding,) = check(worktree_lab)
    assert (finding.code, finding.expected) == ("N218", "`lib/sums.py:L5-L7`")
    assert finding.help == "`shardbook check --fix --write` cites them there"
    fixing.fix({worktree_lab.folder: None}, worktree_lab.bench(), write=True)
    assert "`lib/sums.py:5-7`" in note(worktree_lab)
    assert find(worktree_lab) == []


def test_ranges_of_one_path_whose_lines_part_need_a_citation_each(worktree_lab: Lab) -> None:
    write(worktree_lab, "`add_one` and `add_two` add (`pkg/work.py:4-6, 9-11`).")
    worktree_lab.check()
    move_add_one(worktree_lab)
    helps = {finding.help for finding in check(worktree_lab)}
    assert helps == {"one path can't serve lines of two files; write a citation for each file"}


def test_a_renamed_file_is_found(worktree_lab: Lab) -> None:
    write(worktree_lab, NOTE.partition(". Twice")[0])
    worktree_lab.check()
    worktree_lab.root.joinpath("pkg/work.py").rename(worktree_lab.root / "pkg/task.py")
    assert find(worktree_lab) == [("N218", "`pkg/task.py:L4-L6`")]
    fixing.fix({worktree_lab.folder: None}, worktree_lab.bench(), write=True)
    assert "`pkg/task.py:4-6`" in note(worktree_lab)
    assert find(worktree_lab) == []


def test_a_line_outside_of_any_function_follows_a_renamed_file(worktree_lab: Lab) -> None:
    edit(worktree_lab, '"""Work."""\n', '"""Work."""\n\nLIMIT = 4\n')
    write(worktree_lab, "The `LIMIT` is 4: `pkg/work.py:3`.")
    worktree_lab.check()
    commit_all(worktree_lab.root)
    (worktree_lab.root / "pkg/work.py").rename(worktree_lab.root / "pkg/task.py")
    (worktree_lab.root / "pkg/other.py").write_text("LIMIT = 4\n")  # it has no other line
    assert find(worktree_lab) == [("N218", "`pkg/task.py:L3`")]
    commit_all(worktree_lab.root)
    assert find(worktree_lab) == [("N218", "`pkg/task.py:L3`")]


def test_links_labels_and_ranges_follow_a_renamed_file_in_one_run(worktree_lab: Lab) -> None:
    text = (
        "`add_one` and `add_two`: [work.py:4](../pkg/work.py#L4-L6), [`work.py`](/pkg/work.py#L4), "
        "`pkg/work.py:4-6`, `:9-11`."
    )
    write(worktree_lab, text)
    assert worktree_lab.check().findings == []
    edit(worktree_lab, '"""Work."""\n', '"""Work."""\n\nimport math\n')
    (worktree_lab.root / "lib").mkdir()
    (worktree_lab.root / "pkg/work.py").rename(worktree_lab.root / "lib/sums.py")
    findings = check_labs({worktree_lab.folder: None}, worktree_lab.bench()).findings
    assert {finding.code for finding in findings} == {"N218"}
    assert all("--fix --write" in finding.help for finding in findings)
    fixing.fix({worktree_lab.folder: None}, worktree_lab.bench(), write=True)
    assert (
        "[sums.py:6](../lib/sums.py#L6-L8), [`sums.py`](/lib/sums.py#L6), "
        "`lib/sums.py:6-8`, `:11-13`." in note(worktree_lab)
    )
    assert find(worktree_lab) == []
    assert fixing.fix({worktree_lab.folder: None}, worktree_lab.bench(), write=True) == ""


@pytest.mark.parametrize("is_edited", [False, True])
def test_a_symbol_that_left_its_file_is_found(worktree_lab: Lab, *, is_edited: bool) -> None:
    function = WORK[WORK.index("def add_two") :]
    edit(worktree_lab, function, "")
    text = function.replace("+ 2", "+ number") if is_edited else function
    worktree_lab.root.joinpath("pkg/twos.py").write_text(f'"""Twos."""\n\n\n{text}')
    assert [code for code, _ in find(worktree_lab)] == ["N219" if is_edited else "N218"]
    [finding] = check_labs({worktree_lab.folder: None}, worktree_lab.bench()).findings
    assert "`pkg/twos.py#add_two`" in finding.expected + finding.help
    fixing.fix({worktree_lab.folder: None}, worktree_lab.bench(), write=True)
    assert ("`pkg/twos.py#add_two`" in note(worktree_lab)) is not is_edited
    assert is_edited or find(worktree_lab) == []


def test_code_that_changed_names_the_sentence_to_read_again(worktree_lab: Lab) -> None:
    edit(worktree_lab, "number + 2", "number * 2")
    [finding] = check_labs({worktree_lab.folder: None}, worktree_lab.bench()).findings
    assert finding.code == "N219" and finding.found == "`add_two` is `pkg/work.py:L9-L11`"
    assert "“Twice two is what `add_two` computes: `work.py#add_two`.”" in finding.help
    assert "citations.lock" not in fixing.fix(
        {worktree_lab.folder: None}, worktree_lab.bench(), write=False
    )
    assert worktree_lab.check().findings == []  # it was read again and locked


def test_a_line_that_also_stands_elsewhere_has_not_moved_there(worktree_lab: Lab) -> None:
    write(worktree_lab, "`add_one` returns its `total` (`pkg/work.py:L6`).")
    worktree_lab.check()
    worktree_lab.root.joinpath("pkg/sums.py").write_text("def f(total):\n    return total\n")
    edit(worktree_lab, "return total", "return abs(total)")
    assert [code for code, _ in find(worktree_lab)] == ["N219"]
    edit(worktree_lab, "return twice", "return total")
    assert [code for code, _ in find(worktree_lab)] == ["N219"]


def test_of_several_places_the_one_that_moved_as_far_is_taken(worktree_lab: Lab) -> None:
    edit(
        worktree_lab,
        "    total = number + 1\n",
        "    total = number + 1\n    total\n    total\n    total\n",
    )
    write(worktree_lab, "`total`: `pkg/work.py:L5`, `pkg/work.py:L7` and `pkg/work.py:L9`.")
    assert worktree_lab.check().findings == []
    edit(worktree_lab, "def add_one", "# one\n# two\ndef add_one")
    assert [expected for _, expected in find(worktree_lab)] == [
        f"`pkg/work.py:L{n}`" for n in (7, 9, 11)
    ]
    fixing.fix({worktree_lab.folder: None}, worktree_lab.bench(), write=True)
    assert "`pkg/work.py:L7`, `pkg/work.py:L9` and `pkg/work.py:L11`" in note(worktree_lab)
    assert find(worktree_lab) == []


def test_text_at_several_new_places_is_left_to_the_author(worktree_lab: Lab) -> None:
    write(worktree_lab, "`add_one` returns its `total` (`pkg/work.py:L6`).")
    worktree_lab.check()
    edit(
        worktree_lab,
        "    return total\n",
        "    if total:\n        pass\n    return total\n    return total\n",
    )
    assert find(worktree_lab) == [("N218", "`pkg/work.py:L8` or `pkg/work.py:L9`")]
    assert fixing.fix({worktree_lab.folder: None}, worktree_lab.bench(), write=True) == ""


def test_a_shallow_clone_is_checked_from_its_lock(worktree_lab: Lab, tmp_path: Path) -> None:
    edit(worktree_lab, "return twice", "return twice  # two")
    commit_all(worktree_lab.root, "newer")
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{worktree_lab.root}", str(shallow))
    clone = Lab(shallow, tmp_path / "none", "")
    assert [code for code, _ in find(clone)] == ["N219"]
    shutil.rmtree(shallow / ".git")  # not even git is needed for what is cited by its whole path
    (shallow / ".git").mkdir()
    write(clone, NOTE.partition(" Twice")[0])
    assert find(clone) == [("N212", "")]  # of the sentence that was removed
    (shallow / ".git").rmdir()
    with pytest.raises(NotelabError, match="the lab is in no git repository"):
        find(clone)


def test_links_to_ones_own_repository_follow_the_working_tree(worktree_lab: Lab) -> None:
    git(worktree_lab.root, "remote", "add", "origin", "https://code.example/o/own.git")
    blob = "https://code.example/o/own/blob"
    head = git(worktree_lab.root, "rev-parse", "HEAD")
    edit(worktree_lab, '"""Work."""\n', '"""Work."""\n\nimport math\n')
    write(worktree_lab, f"`add_one` is [here]({blob}/main/pkg/work.py#L6-L8).")
    assert worktree_lab.check().findings == []
    write(worktree_lab, f"`add_one` is [here]({blob}/{head}/pkg/work.py#L4-L6).")
    assert [finding.code for finding in worktree_lab.check().findings] == ["N201"]
    write(worktree_lab, f"[There]({blob}/{head}/pkg/work.py), [not]({blob}/{head}/gone.py).")
    assert [finding.code for finding in worktree_lab.check().findings] == ["N232"]
    write(worktree_lab, f"`add_one` is [here]({blob}/main/pkg/work.py#L6-L8).")
    assert worktree_lab.check().findings == []
    edit(worktree_lab, "import math\n", "import math\nimport os\n")
    fixing.fix({worktree_lab.folder: None}, worktree_lab.bench(), write=True)
    assert f"{blob}/main/pkg/work.py#L7-L9" in note(worktree_lab) and find(worktree_lab) == []


@pytest.mark.parametrize("kind", ["link", "folder", "missing"])
def test_what_is_no_file_of_the_working_tree_is_a_finding(worktree_lab: Lab, kind: str) -> None:
    outside = worktree_lab.root.parent / "secret.py"
    outside.write_text(WORK)
    path = worktree_lab.root / "pkg/odd.py"
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "folder":
        path.mkdir()
    write(worktree_lab, "`add_one` is `pkg/odd.py:L4-L6`.")
    codes = {finding.code for finding in worktree_lab.check().findings}
    assert codes & {"N203", "N213"}


def test_windows_line_ends_of_a_checkout_change_nothing(worktree_lab: Lab) -> None:
    work = worktree_lab.root / "pkg/work.py"
    work.write_bytes(work.read_bytes().replace(b"\n", b"\r\n"))
    assert find(worktree_lab) == []


def test_there_is_no_pin_to_move(worktree_lab: Lab) -> None:
    with pytest.raises(NotelabError, match="follows the working tree"):
        pinning.pin(worktree_lab.folder, "s", "main", worktree_lab.bench())
    with pytest.raises(NotelabError, match="follows the working tree"):
        migrate.open_migration(worktree_lab.folder, "s", "main", worktree_lab.bench())
    lab_file = worktree_lab.folder / "lab.toml"
    lab_file.write_text(lab_file.read_text().replace('path = "."', 'url = "https://example.org/x"'))
    with pytest.raises(NotelabError, match="can only be"):
        load(worktree_lab.folder)


def test_a_commit_of_a_cited_file_alone_checks_the_lab_that_cites_it(worktree_lab: Lab) -> None:
    wanted, strays = select_labs([worktree_lab.root / "pkg/work.py"], load)
    assert list(wanted) == [worktree_lab.folder] and not strays
    wanted, strays = select_labs([worktree_lab.root / "pkg/other.py"], load, may_be_nothing=True)
    assert not wanted
