"""`shardbook audit`: citations are dated, carried and judged; what is certain is written."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from notelab.audit.audit import audit_document, rewrite
from notelab.errors import NotelabError
from tests.notelab.in_process import run_shardbook
from tests.notelab.scratch import commit_all, copy_filled, git, make_repository

CODE = '''\
"""Rings."""

LIMIT = 4


class Ring:
    """A ring of ranks."""

    def send(self, to):
        """Send a frame."""
        frame = build_frame(to)
        self.pending.append(frame)
        return frame


def build_frame(to):
    """Build a frame."""
    header = encode_header(to)
    return header + b"body"
'''
NOTE = """\
# Rings

`Ring.send` (`ring.py:9`) builds a frame with `build_frame` (`src/ring.py:16`), whose header comes
from `encode_header` (`src/ring.py:18`).

The limit is `LIMIT`, see src/ring.py:3.
"""
MOVED = CODE.replace("LIMIT = 4", "import os\nimport sys\n\nLIMIT = 4")
KEYS = [
    "document", "line", "citation", "path", "start", "end", "state", "certain", "proposals",
    "reason", "dated",
]  # fmt: skip


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """Return a repository with code, a document that cites it, and one commit of both."""
    folder = tmp_path / "book"
    copy_filled(make_book, folder)
    return folder


def make_book(folder: Path) -> None:
    make_repository(folder, {"src/ring.py": CODE, "src/notes.md": NOTE})


def run(book: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PYTHONPATH": ":".join(sys.path)}
    return run_shardbook("audit", *arguments, folder=book, environment=environment)


def audit(book: Path, *arguments: str) -> list[dict[str, object]]:
    done = run(book, *(arguments or ("src/notes.md",)), "--output-format", "json")
    assert done.returncode in (0, 1), done.stderr
    answer = json.loads(done.stdout)
    assert list(answer) == ["citations"]
    for row in answer["citations"]:
        assert list(row) == KEYS
        assert all(list(place) == ["path", "start", "end"] for place in row["proposals"])
    rows: list[dict[str, object]] = answer["citations"]
    return rows


def states(rows: list[dict[str, object]]) -> list[object]:
    return [row["state"] for row in rows]


def edit(book: Path, text: str, message: str = "code") -> None:
    (book / "src/ring.py").write_text(text)
    commit_all(book, message)


def test_fresh_citations_are_right(book: Path) -> None:
    rows = audit(book)
    assert states(rows) == ["right"] * 4
    assert run(book, "src/notes.md").returncode == 0
    assert {row["path"] for row in rows} == {"src/ring.py"}


def test_moved_lines_are_certain_and_written_in_their_own_form(book: Path) -> None:
    dated = git(book, "rev-parse", "HEAD")
    edit(book, MOVED)
    rows = audit(book)
    assert [(row["state"], row["certain"], row["dated"]) for row in rows] == [
        ("moved", certain, dated) for certain in (True, True, False, True)
    ]
    assert rows[0]["proposals"] == [{"path": "src/ring.py", "start": 12, "end": 12}]
    done = run(book, "src/notes.md", "--write")
    assert "3 citations rewritten" in done.stdout
    text = (book / "src/notes.md").read_text()
    assert all(each in text for each in ("`ring.py:12`", "`src/ring.py:19`", "see src/ring.py:6."))
    commit_all(book, "notes")
    assert states(audit(book)) == ["right", "right", "moved", "right"]


def test_a_reworded_line_keeps_the_date_of_its_number(book: Path) -> None:
    edit(book, MOVED)
    note = book / "src/notes.md"
    note.write_text(note.read_text().replace("builds a frame with", "builds frames with"))
    commit_all(book, "words")
    rows = audit(book)
    assert rows[0]["proposals"] == [{"path": "src/ring.py", "start": 12, "end": 12}]
    assert states(rows) == ["moved"] * 4


def test_a_number_that_was_wrong_when_written_is_judged_by_the_names(book: Path) -> None:
    note = book / "src/notes.md"
    note.write_text(NOTE.replace("`src/ring.py:16`", "`src/ring.py:4`"))
    commit_all(book, "wrong")
    row = audit(book)[1]
    assert (row["state"], row["certain"]) == ("moved", False)
    assert row["proposals"][0] == {"path": "src/ring.py", "start": 16, "end": 16}  # type: ignore[index]
    run(book, "src/notes.md", "--write")
    assert "`src/ring.py:4`" in note.read_text()


def test_changed_lines_get_a_proposal_and_are_never_written(book: Path) -> None:
    edit(book, MOVED.replace("encode_header(to)", "encode_header(to, self_check=True)"))
    row = audit(book)[2]
    assert (row["state"], row["certain"]) == ("changed", False)
    assert row["proposals"][0] == {"path": "src/ring.py", "start": 21, "end": 21}  # type: ignore[index]


def test_a_file_that_is_gone_leaves_its_citations_gone(book: Path) -> None:
    git(book, "rm", "-q", "src/ring.py")
    git(book, "commit", "-q", "-m", "gone")
    assert set(states(audit(book))) == {"gone"}


def test_a_renamed_file_is_found_again(book: Path) -> None:
    git(book, "mv", "src/ring.py", "src/circle.py")
    git(book, "commit", "-q", "-m", "renamed")
    for row in audit(book)[:3]:
        assert row["state"] == "moved"
        assert row["proposals"][0]["path"] == "src/circle.py"  # type: ignore[index]
    assert run(book, "src/notes.md", "--write").returncode == 1
    assert "(`src/circle.py:16`)" in (book / "src/notes.md").read_text()


def test_documents_of_an_earlier_commit_are_audited_against_its_code(book: Path) -> None:
    first = git(book, "rev-parse", "HEAD")
    edit(book, MOVED)
    second = git(book, "rev-parse", "HEAD")
    git(book, "rm", "-q", "-r", "src")
    git(book, "commit", "-q", "-m", "gone")
    assert set(states(audit(book, "src/notes.md", "--at", first))) == {"right"}
    assert set(states(audit(book, "src/notes.md", "--at", second))) == {"moved"}


def test_a_document_that_was_written_before_the_last_changes_is_dated_by_its_names(
    book: Path,
) -> None:
    edit(book, "import os\n" + CODE)
    edit(book, MOVED)
    (book / "src/late.md").write_text("# A\n\nThe `header` has the body: `src/ring.py:19`.\n")
    commit_all(book, "a day later")
    edit(book, MOVED + "\nLAST = 1\n")
    (row,) = audit(book, "src/late.md")
    assert row["proposals"][0] == {"path": "src/ring.py", "start": 21, "end": 21}  # type: ignore[index]
    assert row["certain"] is False


def test_a_rewritten_history_leaves_nothing_certain_that_is_wrong(book: Path) -> None:
    edit(book, MOVED)
    git(book, "checkout", "-q", "--orphan", "squashed")
    commit_all(book, "everything in one commit")
    rows = audit(book)
    assert not any(row["certain"] for row in rows)
    assert rows[1]["proposals"][0] == {"path": "src/ring.py", "start": 19, "end": 19}  # type: ignore[index]


def test_a_shallow_clone_leaves_nothing_certain_that_is_wrong(book: Path) -> None:
    edit(book, MOVED)
    shallow = book.parent / "shallow"
    git(book.parent, "clone", "-q", "--depth", "1", book.as_uri(), str(shallow))
    rows = audit(shallow)
    assert not any(row["certain"] for row in rows)
    assert rows[1]["proposals"][0] == {"path": "src/ring.py", "start": 19, "end": 19}  # type: ignore[index]


ABOVE = CODE.replace("def build_frame", "# What build_frame does.\ndef build_frame")
TWICE = ABOVE.replace("does.", "does.\n# And how.")
LATER = "import os\n" + ABOVE
TWO = CODE.replace("class Ring:", "class Line:") + CODE.replace("LIMIT", "SIZE")
TABLE = "| name | line | when |\n|---|---|---|\n| `Ring.send` | `ring.py:9` | {} |"
BRACKETS = "`Ring.send` (`ring.py:9` {}."
LONGER = "    to = str(to)\n    log(to)\n    header = "
LOGGED = TWICE.replace("    header = ", "    log(to)\n    header = ")
HYPHENS = "| rule | code |\n| --- | --- |\n| `send-frame-at-once` | it sends (`ring.py:4`) |"
# The code when the note was written, the note, and the code of today; of the first citation, its
# state, whether it is certain, and the lines that are proposed first (0: any).
JUDGED = {
    "a number about its own row": (CODE, TABLE.format("always"), MOVED, "moved", True, 12, 12),
    "or about another column": (
        CODE, TABLE.format("before `encode_header`"), MOVED, "moved", False, 0, 0,
    ),
    "a name behind it, in its brackets": (
        CODE, BRACKETS.format("in code, as `build_frame`)"), MOVED, "moved", False, 0, 0,
    ),
    "or behind these": (
        CODE, BRACKETS.format("in code) of `build_frame`"), MOVED, "moved", True, 12, 12,
    ),
    "one line of a function": (ABOVE, "`build_frame` (`ring.py:17`)", LATER, "moved", True, 18, 18),
    "and a whole one": (
        ABOVE, "`build_frame` (`ring.py:17`), `Ring` (`ring.py:6-14`)", LATER, "moved", False, 0, 0,
    ),
    "without the comment above": (
        ABOVE, "`build_frame` (`ring.py:17-20`)", LATER, "moved", False, 0, 0,
    ),
    "with it": (ABOVE, "`build_frame` (`ring.py:16-20`)", LATER, "moved", True, 17, 21),
    "another spelling": (
        CODE, "The `BuildFrame` of `Ring`: `ring.py:11`.", MOVED, "moved", False, 14, 14,
    ),
    "a comment above what the heading names": (
        ABOVE.replace("build_frame does", "it does"), "## build_frame()\n\nSource: `ring.py:16`",
        None, "", False, 17, 17,
    ),
    "a comment above a definition": (
        ABOVE, "`build_frame` is in `ring.py:16`.", None, "moved", False, 17, 17,
    ),
    "a line of what is named in front of it": (
        CODE, "The body of `build_frame` (`ring.py:18`).", MOVED, "moved", False, 19, 19,
    ),
    "a name in a later column": (
        CODE, "| place | check |\n|---|---|\n| `ring.py:13` | `grep LIMIT` |", MOVED,
        "moved", False, 16, 16,
    ),
    "a comment that mentions the name": (
        CODE.replace("        self.p", "        # Not encode_header.\n        self.p"),
        "The call of `encode_header`: `ring.py:13`.", None, "", False, 19, 19,
    ),
    "a changed function": (
        CODE, "`to` of `build_frame` (`ring.py:16-19`).", CODE.replace("    header = ", LONGER),
        "changed", False, 16, 21,
    ),
    "with its comment": (
        TWICE, "`build_frame` (`ring.py:16-21`).", "import os\n" + LOGGED, "changed", False, 17, 23,
    ),
    "what can't be written": (CODE, "`Ring.send` is **ring.py**:9.", MOVED, "moved", False, 0, 0),
    "another symbol of the name": (
        TWO, "`Ring.send` is `ring.py:9`.", f"import os\n{TWO}", "moved", False, 0, 0,
    ),
    "the symbol itself": (
        TWO, "`Line.send` is `ring.py:9`.", f"import os\n{TWO}", "moved", True, 10, 10,
    ),
    "words with hyphens": (CODE, HYPHENS, MOVED, "moved", False, 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("case", JUDGED)
def test_a_citation_is_judged_and_its_place_proposed(book: Path, case: str) -> None:
    before, note, today, state, certain, start, end = JUDGED[case]
    (book / "src/ring.py").write_text(before)
    (book / "src/notes.md").write_text(f"# A\n\n{note}\n")
    commit_all(book, "notes")
    if today:
        edit(book, today)
    row: dict[str, Any] = audit(book)[0]
    assert row["certain"] is certain
    assert not state or row["state"] == state
    assert case != "words with hyphens" or "send" not in str(row["reason"])
    if start:
        assert row["proposals"][0] == {"path": "src/ring.py", "start": start, "end": end}


def test_what_can_not_be_audited_is_refused_with_advice(book: Path, tmp_path: Path) -> None:
    done = run(book, "src/notes.md", "--at", "v9")
    assert done.returncode == 2 and "v9: no such commit" in done.stderr
    (tmp_path / "note.md").write_text(NOTE)
    done = run(tmp_path, "note.md")
    assert done.returncode == 2
    assert "in no git repository" in done.stderr and "adopt" in done.stderr
    git(tmp_path, "init", "-q")
    done = run(tmp_path, "note.md")
    assert done.returncode == 2 and "has no commit yet" in done.stderr


def test_a_document_that_was_never_committed_is_read_against_the_code_of_today(book: Path) -> None:
    (book / "src/draft.md").write_text(NOTE)
    rows = audit(book, "src/draft.md")
    assert {row["dated"] for row in rows} == {None}
    assert states(rows) == ["right"] * 4


def test_a_repository_with_other_object_names_is_refused(tmp_path: Path) -> None:
    """Its files were all called gone, because their ids weren't understood."""
    git(tmp_path, "init", "-q", "--object-format=sha256")
    (tmp_path / "note.md").write_text(NOTE)
    commit_all(tmp_path, "first")
    done = run(tmp_path, "note.md")
    assert done.returncode == 2 and "SHA-256" in done.stderr


def test_a_word_that_only_looks_like_a_path_is_no_citation(book: Path) -> None:
    words = "`example.com:443`, `node.js:18`, `np.float32:4`, `a/b:3`, `C:\\x.py:12`"
    (book / "src/notes.md").write_text(f"# A\n\nSee {words}, `a.py:3`.\n")
    commit_all(book, "words")
    [row] = audit(book)
    assert (row["citation"], row["state"], row["proposals"]) == ("a.py:3", "unknown", [])


def test_a_path_that_two_files_end_in_is_never_certain(book: Path) -> None:
    for folder in ("a", "b"):
        (book / folder).mkdir()
        (book / folder / "wheel.py").write_text(CODE)
    (book / "src/notes.md").write_text("# A\n\n`build_frame` is in `wheel.py:16`.\n")
    commit_all(book, "two")
    (row,) = audit(book)
    assert row["certain"] is False and "2 files end in this path" in str(row["reason"])
    (book / "a/wheel.py").write_text(CODE.replace("build_frame", "build_body"))
    commit_all(book, "only one of them has the name")
    assert audit(book)[0]["path"] == "b/wheel.py"


def test_a_file_beside_the_document_wins(book: Path) -> None:
    (book / "other").mkdir()
    for name in ("other/ring.py", "ring.py"):
        (book / name).write_text("x = 1\n")
    commit_all(book, "another")
    assert audit(book)[0]["path"] == "src/ring.py"


def test_a_citation_by_symbol_survives_moves(book: Path) -> None:
    (book / "src/notes.md").write_text("# A\n\n`Ring` sends in `src/ring.py#Ring.send`.\n")
    edit(book, MOVED)
    (row,) = audit(book)
    assert row["state"] == "right"
    assert [(row["start"], row["end"]) for row in audit(book)] == [(12, 16)]
    edit(book, MOVED.replace("def send", "def post"), "renamed")
    assert states(audit(book)) == ["gone"]


def test_permalinks_name_their_commit_and_are_left_to_check(book: Path) -> None:
    link = f"https://example.org/o/s/blob/{'a' * 40}/src/ring.py#L4"
    (book / "src/notes.md").write_text(f"# A\n\n[here]({link})\n")
    assert audit(book) == []


def test_windows_line_ends_survive_a_rewrite(book: Path) -> None:
    note = book / "src/notes.md"
    note.write_bytes(NOTE.replace("\n", "\r\n").encode())
    commit_all(book, "line ends")
    edit(book, MOVED)
    assert "3 citations rewritten" in run(book, "src/notes.md", "--write").stdout
    data = note.read_bytes()
    assert data.count(b"\r\n") == data.count(b"\n") and b"`ring.py:12`" in data


@pytest.mark.ci
def test_twenty_thousand_links_are_read(book: Path) -> None:
    links = "".join(f"- `build_frame` [here](ring.py#L{16 + n % 3})\n" for n in range(20_000))
    (book / "src/notes.md").write_text(f"# A\n\n{links}")
    commit_all(book, "links")
    rows = audit(book)
    assert len(rows) == 20_000


def test_a_path_out_of_the_repository_is_unknown(book: Path) -> None:
    """Git ends at such a path; the audit then ended too, with no output."""
    paths = ("../../../etc/passwd:1", "/etc/passwd:1", "./nowhere.py:1", "src//ring.py:9")
    note = "".join(f"`Ring` is in `{path}`.\n\n" for path in paths)
    (book / "src/notes.md").write_text(f"{note}`Ring.send` is `ring.py:9`.\n")
    commit_all(book, "notes")
    rows = audit(book)
    assert states(rows)[-1] == "right"
    assert set(states(rows)[:-1]) <= {"unknown", "gone"}


def test_a_document_can_give_git_no_options(book: Path, tmp_path: Path) -> None:
    """A NUL in a document's diff once began an entry of the log, whose name reached git."""
    hostile = f"{'x ' * 5000}\n\na\0--output={tmp_path}/written\n\n`encode_hdr` `src/ring.py:9`\n"
    (book / "src/notes.md").write_text(hostile)
    commit_all(book, "notes")
    edit(book, MOVED)
    assert states(audit(book)) != []
    assert not list(tmp_path.glob("written*"))


def test_one_file_that_is_gone_is_not_two(book: Path) -> None:
    git(book, "mv", "src/notes.md", "notes.md")
    (book / "notes.md").write_text("`Ring.send` is `src/ring.py:9`.\n")
    commit_all(book, "notes")
    git(book, "rm", "-q", "src/ring.py")
    commit_all(book, "gone")
    assert "files end in this path" not in run(book, "notes.md").stdout


def test_only_the_citation_is_rewritten(book: Path) -> None:
    """Mixed line ends, a byte order mark, the file's mode and a link to it stay as they are."""
    note, link = book / "src/notes.md", book / "src/link.md"
    note.write_bytes(b"\xef\xbb\xbf`Ring.send` is `ring.py:9`.\r\n\nA\rline.\n\r\nThe end")
    note.chmod(0o755)
    commit_all(book, "notes")
    edit(book, MOVED)
    link.symlink_to("notes.md")
    assert run(book, "src/link.md", "--write").returncode == 0
    expected = b"\xef\xbb\xbf`Ring.send` is `ring.py:12`.\r\n\nA\rline.\n\r\nThe end"
    assert note.read_bytes() == expected
    assert note.stat().st_mode & 0o777 == 0o755
    assert link.is_symlink()


def test_a_document_that_changes_during_the_audit_is_left(book: Path) -> None:
    edit(book, MOVED)
    document = audit_document(book / "src/notes.md", "")
    (book / "src/notes.md").write_text(f"New.\n\n{NOTE}")
    with pytest.raises(NotelabError, match="was changed while it was audited"):
        rewrite(document)


def test_the_label_of_a_link_is_rewritten_with_its_target(book: Path) -> None:
    forms = ["[`ring.py:9`](ring.py#L9)", "[line 9](ring.py#L9)", "[all 9](<ring.py#L9>)"]
    (book / "src/notes.md").write_text("".join(f"`Ring.send` is {form}.\n\n" for form in forms))
    commit_all(book, "notes")
    edit(book, MOVED)
    assert [row["certain"] for row in audit(book)] == [True, True, False]
    run(book, "src/notes.md", "--write")
    text = (book / "src/notes.md").read_text()
    assert "[`ring.py:12`](ring.py#L12)" in text
    assert "[line 12](ring.py#L12)" in text
    assert forms[2] in text  # `9` may count something else


def test_a_path_from_the_page_or_the_root_still_leads_from_there(book: Path) -> None:
    (book / "src/deep").mkdir()
    forms = ["[it](../ring.py#L16)", "[it](/src/ring.py#L16)", "`../ring.py:16`"]
    text = "".join(f"`build_frame` is {form}.\n\n" for form in forms)
    (book / "src/deep/notes.md").write_text(f"# Links\n\n{text}")
    commit_all(book, "links")
    (book / "lib").mkdir()
    git(book, "mv", "src/ring.py", "lib/frames.py")
    commit_all(book, "renamed")
    rows = audit(book, "src/deep/notes.md")
    assert states(rows) == ["moved"] * 3 and all(row["certain"] for row in rows)
    assert run(book, "src/deep/notes.md", "--write").returncode == 0
    written = (book / "src/deep/notes.md").read_text()
    for form in ("[it](../../lib/frames.py#L16)", "[it](/lib/frames.py#L16)"):
        assert form in written
    assert "`../../lib/frames.py:16`" in written


def test_an_implementation_is_no_other_symbol(book: Path) -> None:
    code = "pub struct Ring<F> {\n    size: F,\n}\n\nimpl<F: Copy> Ring<F> {\n    fn size() {}\n}\n"
    (book / "src/ring.rs").write_text(code)
    (book / "src/notes.md").write_text("# A\n\n`Ring` is `ring.rs:1`.\n")
    commit_all(book, "notes")
    (book / "src/ring.rs").write_text(f"use std::fmt;\n\n{code}")
    commit_all(book, "code")
    assert [(row["state"], row["certain"]) for row in audit(book)] == [("moved", True)]


def test_a_part_that_is_not_read_is_named_and_fails(book: Path) -> None:
    """A paragraph of 500 links was left out without a word, and the status was 0."""
    (book / "src/notes.md").write_text("# Rings\n\n" + "`Ring.send` `ring.py:9` " * 500)
    done = run(book, "src/notes.md", "--output-format", "json")
    assert done.returncode == 1
    assert "src/notes.md:3 has a paragraph of" in done.stderr
    assert json.loads(done.stdout) == {"citations": []}


@pytest.mark.parametrize(("send", "proposal"), [(9, 15), (19, 6)])
def test_where_the_other_numbers_of_a_commit_fit_the_text_is_carried(
    book: Path, send: int, proposal: int
) -> None:
    others = "".join(f"- `send` is at `ring.py:{send}`, {n}\n" for n in range(4))
    beside = "The call of `append` is in `ring.py:13`."
    text = f"{others}\nThe `LIMIT` holds for `ring.py:12`.\n\n{beside}\n"
    (book / "src/notes.md").write_text(text)
    commit_all(book, "all numbers")
    (book / "src/ring.py").write_text(MOVED)
    commit_all(book, "moved")
    limit, append = audit_document(book / "src/notes.md", "").citations[-2:]
    assert (limit.proposals[0].start, limit.certain) == (proposal, False)
    assert {place.start for place in limit.proposals} >= {6, 15}
    assert append.proposals[0].start == 15


def test_a_link_says_which_file_its_label_cites(book: Path) -> None:
    (book / "lib").mkdir()
    (book / "lib/ring.py").write_text(CODE)
    (book / "src/notes.md").write_text("`build_frame` ([`ring.py:16`](../lib/ring.py))\n")
    commit_all(book, "two files")
    assert [each.path for each in audit_document(book / "src/notes.md", "").citations] == [
        "lib/ring.py"
    ]


def test_a_citation_in_a_heading_and_the_parts_of_paths_have_no_names(book: Path) -> None:
    text = "## `build_frame`\n\n## Ready ([`ring.py:11`](../src/build_frame/ring.py))\n"
    (book / "src/notes.md").write_text(f"{text}\n`ls build_frame/a.py` lists `ring.py:13`.\n")
    commit_all(book, "headings")
    (book / "src/ring.py").write_text(MOVED)
    commit_all(book, "moved")
    citations = audit_document(book / "src/notes.md", "").citations
    assert [each.proposals[0].start for each in citations] == [14, 16]


def test_equal_text_under_other_conditions_is_proposed(book: Path) -> None:
    code = "export function A() {\n  return (\n    <Nav\n      onOpen={go}\n    />\n  );\n}\n"
    (book / "src/a.tsx").write_text(code)
    (book / "src/notes.md").write_text("A click calls `go` (`a.tsx:4`).\n")
    commit_all(book, "page")
    (book / "src/a.tsx").write_text("// A page.\n" + code.replace("<Nav", "<Navigation"))
    commit_all(book, "another name")
    (citation,) = audit_document(book / "src/notes.md", "").citations
    assert (citation.state, citation.certain) == ("changed", False)
    assert citation.proposals[0].start == 5
