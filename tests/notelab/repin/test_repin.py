"""`shardbook repin`: what is the same is written, what is not is told and waits at its commit."""

import json
import shutil

import msgspec
import pytest

from notelab import files
from notelab.repin.version import enclosing_chains
from tests.notelab.scratch import UPSTREAM, Scratch, commit_all, git

MOVED = UPSTREAM.replace("import math\n", "import math\nimport os\nimport sys\n")
EDITED = MOVED.replace("total = math.hypot(left, right)", "total = left + right")
CONDITIONAL = UPSTREAM.replace(
    "        self.uses += 1\n",
    "        if amount:\n            self.factor = 1\n        self.uses += 1\n",
)


def release(scratch: Scratch, text: str, tag: str) -> None:
    scratch.upstream.joinpath("pkg/scaler.py").write_text(text)
    git(scratch.upstream, "commit", "-q", "-am", tag)
    git(scratch.upstream, "tag", tag)


def commit_notes(scratch: Scratch) -> None:
    commit_all(scratch.book, "notes")


def list_changes(scratch: Scratch, ref: str) -> dict[str, dict[str, object]]:
    ran = scratch.run("repin", "up", ref, "--output-format", "json", "--offline")
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout)["citations"]
    return {f"{row['start']}-{row['end']}": row for row in rows}


def test_lines_that_only_moved_are_carried_with_their_pages(scratch: Scratch) -> None:
    release(scratch, MOVED, "v2")
    rows = list_changes(scratch, "v2")
    assert rows["14-15"]["class"] == "moved"
    assert rows["14-15"]["new"] == {"path": "pkg/scaler.py", "start": 16, "end": 17}
    pages = rows["14-15"]["pages"]
    assert isinstance(pages, list)
    assert {str(page).rpartition("/")[2] for page in pages} == {"note.md", "note.es.md"}


def test_edited_lines_are_proposed_and_never_written(scratch: Scratch) -> None:
    release(scratch, EDITED, "v2")
    rows = list_changes(scratch, "v2")
    assert rows["22-25"]["class"] == "edited"
    assert rows["22-25"]["new"] is None
    assert rows["22-25"]["proposals"][0] == {"path": "pkg/scaler.py", "start": 24, "end": 27}  # type: ignore[index]


def test_an_identical_statement_under_another_condition_is_not_carried(scratch: Scratch) -> None:
    text = UPSTREAM.replace(
        "        scaled = amount * self.factor\n"
        "        if scaled > math.inf:\n"
        "            raise OverflowError(scaled)\n",
        "        scaled = amount * self.factor\n"
        "        if not scaled:\n"
        "            return scaled\n"
        "        elif scaled > math.inf:\n"
        "            raise OverflowError(scaled)\n",
    )
    scratch.replace_both("`pkg/scaler.py:L14-L15`", "`pkg/scaler.py:L18`")
    scratch.lock()
    release(scratch, text, "v2")
    assert list_changes(scratch, "v2")["18-18"]["class"] == "edited"


def test_lines_whose_function_has_another_name_are_not_carried(scratch: Scratch) -> None:
    release(scratch, UPSTREAM.replace("def apply", "def scale"), "v2")
    assert list_changes(scratch, "v2")["14-15"]["class"] == "edited"


def test_lines_of_which_nothing_is_left_are_gone(scratch: Scratch) -> None:
    release(scratch, UPSTREAM.partition("def combine")[0], "v2")
    row = list_changes(scratch, "v2")["22-25"]
    assert (row["class"], row["proposals"]) == ("gone", [])


def test_what_is_reformatted_is_accepted_together_and_nothing_else(scratch: Scratch) -> None:
    commit_notes(scratch)
    laid_out = UPSTREAM.replace("hypot(left, right)", "hypot(\n        left, right\n    )")
    release(scratch, laid_out.replace("self.uses += 1", "self.uses += 2"), "v2")
    rows = list_changes(scratch, "v2")
    assert (rows["14-15"]["class"], rows["22-25"]["class"]) == ("edited", "reformatted")
    done = scratch.run("repin", "up", "v2", "--reformatted", "--offline")
    assert done.returncode == 0, done.stderr
    assert "`pkg/scaler.py:L22-L27`" in scratch.read("note.md")
    assert "`pkg/scaler.py:L14-L15`" in scratch.read("note.md")
    assert set(scratch.codes()) == {"N217"}


def test_there_and_back_leaves_the_pages_as_they_were(scratch: Scratch) -> None:
    commit_notes(scratch)
    release(scratch, EDITED, "v2")
    names = ("note.md", "note.es.md", "up-sha.txt", "lab.toml", "citations.lock")
    before = {name: scratch.read(name) for name in names}
    forward = scratch.run("repin", "up", "v2", "--write", "--offline")
    assert forward.returncode == 0, forward.stderr
    assert "`pkg/scaler.py:L16-L17`" in scratch.read("note.es.md")
    git(scratch.book, "commit", "-q", "-am", "v2")
    back = scratch.run("repin", "up", "v1", "--write", "--offline")
    assert back.returncode == 0, back.stderr
    assert {name: scratch.read(name) for name in names} == before


def test_a_dry_run_writes_nothing(scratch: Scratch) -> None:
    commit_notes(scratch)
    release(scratch, MOVED, "v2")
    done = scratch.run("repin", "up", "v2", "--write", "--dry-run", "--offline")
    assert done.returncode == 0, done.stderr
    assert git(scratch.book, "status", "--porcelain") == ""


def test_what_waits_is_a_finding_until_it_is_accepted(scratch: Scratch) -> None:
    commit_notes(scratch)
    release(scratch, EDITED, "v2")
    scratch.run("repin", "up", "v2", "--write", "--offline")
    assert set(scratch.codes()) == {"N217"}
    scratch.lock()
    assert set(scratch.codes()) == {"N217"}, "a lock made anew must not forget who waits"
    accept = "pkg/scaler.py:L22-L25=L24-L27"
    done = scratch.run("repin", "up", "v2", "--accept", accept, "--offline")
    assert done.returncode == 0, done.stderr
    assert scratch.codes() == []


def test_what_waits_is_shown_as_it_stood_where_it_waits(scratch: Scratch) -> None:
    scratch.replace("note.md", "a Euclidean length", "a Euclidean length, `hypot`,")
    commit_notes(scratch)
    release(scratch, EDITED, "v2")
    runs = [scratch.run("repin", "up", "v2", *more, "--offline") for more in (["--write"], [])]
    # By the second run another citation of the file stands at the new commit already.
    for ran in runs:
        assert "total = math.hypot(left, right)" in ran.stdout


def test_names_that_left_the_tree_are_listed_while_anything_waits(scratch: Scratch) -> None:
    scratch.replace("note.md", "a Euclidean length", "a Euclidean length, `hypot`,")
    commit_notes(scratch)
    release(scratch, EDITED, "v2")
    as_json = ("--output-format", "json", "--offline")
    first, _, second = (
        scratch.run("repin", "up", "v2", *more, *as_json) for more in ([], ["--write"], [])
    )
    assert [row["name"] for row in json.loads(first.stdout)["names"]] == ["hypot"]
    assert json.loads(second.stdout)["names"] == json.loads(first.stdout)["names"]


def test_lines_of_a_path_with_an_equals_sign_and_a_colon_are_accepted(scratch: Scratch) -> None:
    name = "pkg/a=b:c.py"
    scratch.upstream.joinpath(name).write_text(UPSTREAM)
    commit_all(scratch.upstream, "odd")
    scratch.write("up-sha.txt", git(scratch.upstream, "rev-parse", "HEAD") + "\n")
    for page in ("note.md", "note.es.md"):
        scratch.replace(page, "`pkg/scaler.py:L22-L25`", f"`up:{name}:L22-L25`")
    scratch.lock()
    commit_notes(scratch)
    scratch.upstream.joinpath(name).write_text(EDITED)
    git(scratch.upstream, "commit", "-q", "-am", "v2")
    git(scratch.upstream, "tag", "v2")
    done = scratch.run("repin", "up", "v2", "--accept", f"{name}:L22-L25=L24-L27", "--offline")
    assert done.returncode == 0, done.stderr
    assert f"`up:{name}:L24-L27`" in scratch.read("note.md")


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("L24-L270", "expected lines 1 to 27 of pkg/scaler.py"),
        ("L27-L24", "expected lines 1 to 27 of pkg/scaler.py"),
        ("L0-L24", "expected lines 1 to 27 of pkg/scaler.py"),
        ("pkg/none.py:L1", "pkg/none.py can't be read"),
        ("../book/none.py:L1", "../book/none.py can't be read"),
    ],
)
def test_lines_that_the_new_commit_does_not_have_are_not_accepted(
    scratch: Scratch, new: str, message: str
) -> None:
    commit_notes(scratch)
    release(scratch, EDITED, "v2")
    done = scratch.run("repin", "up", "v2", "--accept", f"pkg/scaler.py:L22-L25={new}", "--offline")
    assert done.returncode == 2 and message in done.stderr, done
    assert git(scratch.book, "status", "--short") == ""


def test_a_killed_repin_is_finished_by_the_next(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = scratch.book / "a.md", scratch.book / "b.md"
    first.write_text("old")
    second.write_text("old")
    plain = files.write_files

    def killed(contents: dict) -> None:  # type: ignore[type-arg]
        if second in contents:
            plain({first: contents[first]})
            raise KeyboardInterrupt
        plain(contents)

    monkeypatch.setattr(files, "write_files", killed)
    with pytest.raises(KeyboardInterrupt):
        files.write_with_journal(scratch.book, {first: b"new", second: b"new"})
    assert (first.read_text(), second.read_text()) == ("new", "old")
    monkeypatch.undo()
    assert files.finish_journal(scratch.book) == ["a.md", "b.md"]
    assert (first.read_text(), second.read_text()) == ("new", "new")
    assert files.finish_journal(scratch.book) == []


@pytest.mark.parametrize("name", [".git/hooks/post-commit", "../outside.md"])
def test_a_strangers_journal_writes_nothing_but_what_repin_writes(
    scratch: Scratch, name: str
) -> None:
    journal_file = scratch.book / files.JOURNAL
    journal_file.write_bytes(msgspec.json.encode({"note.md": b"x", name: b"#!/bin/sh"}))
    before = scratch.read("note.md")
    ran = scratch.run("repin", "up", "v1", "--offline")
    assert ran.returncode == 2
    assert "is no file of the workbook" in ran.stderr
    assert scratch.read("note.md") == before
    assert not (scratch.book / name).exists()


@pytest.mark.parametrize(
    ("prepare", "ref", "message"),
    [
        ("nothing", "no-such-tag", "'no-such-tag'"),
        ("stranger", "v2", "none of the 1 cited files"),
        ("folder", "v2", "none of the 1 cited files"),
        ("dirty", "v2", "not committed"),
        ("no repository", "v2", "is no git repository, so what repin writes could not be undone"),
    ],
)
def test_what_cannot_be_carried_is_one_line_and_nothing_is_lost(
    scratch: Scratch, prepare: str, ref: str, message: str
) -> None:
    commit_notes(scratch)
    place = scratch.upstream / "pkg/scaler.py"
    if prepare == "dirty":
        scratch.write("note.md", scratch.read("note.md") + "\nMore.\n")
        release(scratch, MOVED, "v2")
    elif prepare == "no repository":
        shutil.rmtree(scratch.book / ".git")
        release(scratch, MOVED, "v2")
    elif prepare in ("stranger", "folder"):
        place.unlink()
        if prepare == "folder":
            place.mkdir()
            (place / "inner.py").write_text("x = 1\n")
        else:
            git(scratch.upstream, "checkout", "-q", "--orphan", "other")
            (scratch.upstream / "README").write_text("another project\n")
        commit_all(scratch.upstream, "v2")
        git(scratch.upstream, "tag", "v2")
    before = scratch.read("note.md"), scratch.read("up-sha.txt"), scratch.read("citations.lock")
    ran = scratch.run("repin", "up", ref, "--write", "--offline")
    assert ran.returncode == 2
    assert message in ran.stderr and "Traceback" not in ran.stderr
    after = scratch.read("note.md"), scratch.read("up-sha.txt"), scratch.read("citations.lock")
    assert after == before


@pytest.mark.parametrize(
    ("form", "carried"),
    [
        ("`scaler.py:22-25`", "`scaler.py:24-27`"),
        ("`pkg/scaler.py#L22-L25`", "`pkg/scaler.py#L24-L27`"),
        ("`pkg/scaler.py:14-15, 22-25`", "`pkg/scaler.py:16-17, 24-27`"),
        ("`scaler.py`, lines 22–25,", "`scaler.py`, lines 24–27,"),
        ("pkg/scaler.py:22-25", "pkg/scaler.py:24-27"),
        ("`pkg/scaler.py#combine`", "`pkg/scaler.py#combine`"),
    ],
)
def test_a_citation_in_another_form_is_carried_too(
    scratch: Scratch, form: str, carried: str
) -> None:
    scratch.replace_both("`pkg/scaler.py:L22-L25`", f"{form} (`uses`)")
    scratch.lock()
    assert scratch.codes() == []
    commit_notes(scratch)
    release(scratch, MOVED, "v2")
    done = scratch.run("repin", "up", "v2", "--write", "--offline")
    assert done.returncode == 0, done.stderr
    assert f"{carried} (`uses`)" in scratch.read("note.md")
    assert scratch.codes() == []


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("`pkg/scaler.py:22-25`", "`pkg/sizes.py:24-27`"),
        ("`pkg/scaler.py:14-15, 22-25`", "`pkg/sizes.py:16-17, 24-27`"),
        ("`pkg/scaler.py:16, 22-25`", "`pkg/scaler.py:16, 22-25`"),  # line 16 changes
    ],
)
def test_a_renamed_file_is_followed_by_all_ranges_or_by_none(
    scratch: Scratch, form: str, written: str
) -> None:
    scratch.replace_both("`pkg/scaler.py:L22-L25`", f"{form} (`uses` and `scaled`)")
    scratch.lock()
    commit_notes(scratch)
    git(scratch.upstream, "mv", "pkg/scaler.py", "pkg/sizes.py")
    text = MOVED.replace("scaled = amount * ", "scaled = 2 * amount * ")
    (scratch.upstream / "pkg/sizes.py").write_text(text)
    git(scratch.upstream, "commit", "-q", "-a", "-m", "renamed")
    git(scratch.upstream, "tag", "v2")
    done = scratch.run("repin", "up", "v2", "--write", "--offline")
    assert done.returncode == 0, done.stderr
    assert f"{written} (`uses` and `scaled`)" in scratch.read("note.md")


def test_in_a_file_without_a_parser_only_lines_indented_less_enclose_a_line() -> None:
    lines = ["if (x) {", "  first();", "", "  second();", "}"]
    inside = ("if (x) {",)
    assert enclosing_chains("a.cpp", lines) == [(), inside, (*inside, "first();"), inside, ()]
