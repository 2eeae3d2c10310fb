"""Each form of a citation is read, or is a finding with the reason; the forms planted in a corpus.

`READ` forms are proved as the place that they say. `REFUSED` forms are findings of the code that
stands beside them, whatever else of the page is right.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from notelab.book.relock import relock
from notelab.book.workbook import CheckSession, open_lab
from notelab.cache import DiskCache
from notelab.check import check_labs
from notelab.finding import Finding
from notelab.lab import lock as lock_file
from notelab.page.reading import read
from notelab.report.outcome import Report
from notelab.sources.library import Library
from notelab.sources.store import Store
from tests.notelab.scratch import commit_all, commit_of, copy_filled, git, make_repository

WORK = '''\
"""Work."""


def add_one(number):
    total = number + 1
    return total


def add_two(number):
    twice = number + 2
    return twice
'''
LAB = '[lab]\ntitle = "Forms"\n\n[sources.s]\nurl = "https://example.org/o/s"\npin = "s-sha.txt"\n'
FILES = {
    "pkg/work.py": WORK,
    "pkg/other.py": "other = 1\nanother = 2\n",
    "app/(group)/page.tsx": "const page = 1;\nconst add_one = 2;\nadd_one;\nadd_one;\n",
    "docs/it's here.md": "add_one\n",
}
BLOB = "https://example.org/o/s/blob/@SHA@"
PERMALINK = f"{BLOB}/pkg"


def _source(folder: Path) -> None:
    make_repository(folder, FILES)
    git(folder, "tag", "v1.0")
    git(folder, "tag", "releases/v1.0")
    git(folder, "commit", "-q", "--allow-empty", "-m", "two")
    git(folder, "tag", "v2.0")
    git(folder, "branch", "next")
    git(folder, "reset", "-q", "--hard", "v1.0")


@dataclass
class Lab:
    """A lab of one note, and the repository that it cites."""

    root: Path
    source: Path
    commit: str

    @property
    def folder(self) -> Path:
        """The lab's folder, one below the repository's root."""
        return self.root / "lab"

    def bench(self, *, mirror: bool = True) -> CheckSession:
        """Return a bench with an empty cache and without network."""
        mirrors = {"s": self.source} if mirror else {}
        store = Store(self.source.parent / "cache")
        library = Library(store=store, mirrors=mirrors, offline=True)
        return CheckSession(DiskCache(None), library)

    def write(self, text: str, front: str = "") -> None:
        """Write the note."""
        head = f"---\ntitle: Forms\ncommit:\n  s: {self.commit[:12]}\n{front}---\n\n# Forms\n\n"
        body = f"{head}{text}\n".replace("@SHA@", self.commit)
        (self.folder / "note.md").write_text(body, "utf-8")

    def check(self, *, strict: bool = False, mirror: bool = True) -> Report:
        """Lock the note, then check it."""
        bench = self.bench(mirror=mirror)
        if mirror:
            relocked = relock(open_lab(self.folder, bench))
            (self.folder / "citations.lock").write_text(lock_file.dump(relocked.lock))
        return check_labs({self.folder: None}, bench, strict=strict)

    def judge(self, form: str, *, strict: bool = False) -> Report:
        """Check a note with a form in a sentence; a footnote stands on its own."""
        before = "" if form.startswith("[^") else "The name `add_one` is shown by "
        self.write(f"{before}{form}")
        return self.check(strict=strict)


def make_lab(root: Path, write_source: Callable[[Path], None], ref: str) -> Lab:
    """Return a lab below `root` that cites, at `ref`, the repository that `write_source` makes."""
    copy_filled(write_source, root / "source")
    new_lab = Lab(root / "book", root / "source", commit_of(write_source, ref))
    (new_lab.root / ".git").mkdir(parents=True)
    new_lab.folder.mkdir()
    new_lab.folder.joinpath("lab.toml").write_text(LAB + '\n[notes."note.md"]\nsources = ["s"]\n')
    new_lab.folder.joinpath("s-sha.txt").write_text(f"{new_lab.commit}\n")
    return new_lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Return a lab that cites another repository."""
    return make_lab(tmp_path, _source, "v1.0")


@pytest.fixture
def self_citing_lab(tmp_path: Path) -> Lab:
    """Return a lab that cites the repository that holds the lab."""
    root = tmp_path / "book"
    copy_filled(_source, root)
    new_lab = Lab(root, tmp_path / "none", commit_of(_source, "v1.0"))
    new_lab.folder.mkdir()
    table = '[lab]\ntitle = "Own"\n\n[sources.s]\npath = "."\npin = "s-sha.txt"\n'
    new_lab.folder.joinpath("lab.toml").write_text(table + '\n[notes."note.md"]\nsources = ["s"]\n')
    new_lab.folder.joinpath("s-sha.txt").write_text(f"{new_lab.commit}\n")
    return new_lab


READ = [
    ("`pkg/work.py:L4-L6`", "pkg/work.py:L4-L6"),
    ("`pkg/work.py:4-6`", "pkg/work.py:L4-L6"),
    ("`pkg/work.py#L4-L6`", "pkg/work.py:L4-L6"),
    ("`pkg/work.py#L4-6`", "pkg/work.py:L4-L6"),
    ("`pkg/work.py:4`", "pkg/work.py:L4"),
    ("`pkg/work.py:L4`", "pkg/work.py:L4"),
    ("`pkg/work.py:4–6`", "pkg/work.py:L4-L6"),
    ("`pkg/work.py, lines 4-6`", "pkg/work.py:L4-L6"),
    ("`pkg/work.py (line 4)`", "pkg/work.py:L4"),
    ("`s:pkg/work.py:4-6`", "s:pkg/work.py:L4-L6"),
    (f"[work.py:4-6]({PERMALINK}/work.py#L4-L6)", "s:pkg/work.py:L4-L6"),
    (f"[`work.py:4`]({PERMALINK}/work.py#L4-L6)", "s:pkg/work.py:L4-L6"),
    (f"[lines 4–6]({PERMALINK}/work.py#L4-L6)", "s:pkg/work.py:L4-L6"),
    (f"[`pkg/work.py`]({PERMALINK}/work.py#L4-L6)", "s:pkg/work.py:L4-L6"),
    ("https://example.org/o/s/blob/v1.0/pkg/work.py#L4-L6", "s:pkg/work.py:L4-L6"),
    ("https://example.org/o/s/tree/@SHA@/pkg/work.py#L4-L6", "s:pkg/work.py:L4-L6"),
    ("https://example.org/o/s/-/blob/@SHA@/pkg/work.py#L4-6", "s:pkg/work.py:L4-L6"),
    ("https://example.org/o/s/src/@SHA@/pkg/work.py#lines-4:6", "s:pkg/work.py:L4-L6"),
    ("https://example.org/o/s/src/commit/@SHA@/pkg/work.py#L4-L6", "s:pkg/work.py:L4-L6"),
    (f"({BLOB}/app/(group)/page.tsx#L2-L4).", "s:app/(group)/page.tsx:L2-L4"),
    ("https://example.org/o/s/blob/releases/v1.0/pkg/work.py#L4-L6", "s:pkg/work.py:L4-L6"),
    ("https://example.org/o/s/blob/refs/tags/v1.0/pkg/work.py#L4-L6", "s:pkg/work.py:L4-L6"),
    ("https://example.org/o/s/blame/@SHA@/pkg/work.py#L4-L6", "s:pkg/work.py:L4-L6"),
    ("http://Example.org/O/S/blob/@SHA@/pkg/work.py#L4-L6", "s:pkg/work.py:L4-L6"),
    (f"[it]({PERMALINK}/work.py?plain=1#L4C5-L6C9)", "s:pkg/work.py:L4-L6"),
    (f"`{PERMALINK}/work.py#L4-L6`", "s:pkg/work.py:L4-L6"),
    (f"<a href='{PERMALINK}/work.py#L4-L6'>it</a>", "s:pkg/work.py:L4-L6"),
    (f"[it][1]\n\n[1]: {PERMALINK}/work.py#L4-L6", "s:pkg/work.py:L4-L6"),
    ("`work.py:4-6`", "pkg/work.py:L4-L6"),
    ("`pkg/work.py#add_one`", "pkg/work.py:L4-L6"),
    ("`pkg/work.py::add_one`", "pkg/work.py:L4-L6"),
    ("`work.py#add_one`", "pkg/work.py:L4-L6"),
    ("`app/(group)/page.tsx:L2-L4`", "app/(group)/page.tsx:L2-L4"),
    ("`docs/it's here.md:L1`", "docs/it's here.md:L1"),
    (f"[it's here.md:1]({BLOB}/docs/it's%20here.md#L1)", "s:docs/it's here.md:L1"),
    ("`\"pkg/work.py:L4-L6\"`", "pkg/work.py:L4-L6"),
    ("[^1]: `pkg/work.py:L4-L6`, of `add_one`", "pkg/work.py:L4-L6"),
    ("pkg/work.py:4-6", "pkg/work.py:L4-L6"),
    ("**pkg/work.py**:4-6", "pkg/work.py:L4-L6"),
    ("`pkg/work.py` (lines 4-6)", "pkg/work.py:L4-L6"),
    ("lines 4 to 6 of `work.py`", "pkg/work.py:L4-L6"),
    ("`pkg/work.py:4:1`", "pkg/work.py:L4"),
    ("[[s:pkg/work.py#L4-L6]]", "s:pkg/work.py:L4-L6"),
    ("[pkg/work.py:4-6](https://example.com/)", "pkg/work.py:L4-L6"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "place"), READ)
def test_an_honest_form_is_proved_as_the_place_that_it_says_unless_the_lab_asks_for_one_form(
    lab: Lab, form: str, place: str
) -> None:
    report = lab.judge(form, strict=True)
    assert report.findings == []
    assert [(note.citations, note.proved) for note in report.notes] == [(1, 1)]
    lock = lock_file.load(lab.folder / "citations.lock")
    assert lock and list(lock.citations["s"]) == [place]
    lab_file = lab.folder / "lab.toml"
    lab_file.write_text(lab_file.read_text().replace("[lab]\n", '[lab]\nstyle = "canonical"\n'))
    findings = [(finding.code, finding.expected) for finding in lab.check().findings]
    canonical = form.startswith(("`pkg/work.py:L4", "`app", "`docs", "[^1]"))
    assert findings == ([] if canonical else [("N233", f"`{place}`")])


REFUSED = [
    (f"[`pkg/work.py:L4-L6`]({PERMALINK}/other.py#L1-L2)", "N231", "another place"),
    (f"[pkg/work.py:L4-L6]({PERMALINK}/work.py#L9-L11)", "N231", "another place"),
    (f"[`work.py#L9-L11`]({PERMALINK}/work.py#L4-L6)", "N231", "another place"),
    (f"[lines 9-11]({PERMALINK}/work.py#L4-L6)", "N231", "another place"),
    (f"[L9](<{PERMALINK}/work.py#L4-L6>)", "N231", "another place"),
    (f"[`other.py`]({PERMALINK}/work.py#L4-L6)", "N231", "another place"),
    (f"[`pkg/work.py:L4-L6`]({PERMALINK}/other.py)", "N231", "another place"),
    ("`pkg/work.py:1-3, 9000-9003`", "N205", "past the end"),
    ("`pkg/work.py:4-6 and 9000`", "N205", "past the end"),
    ("[[s:pkg/work.py#L9000]]", "N205", "past the end"),
    ("`[[s:pkg/work.py#L9000]]`", "N205", "past the end"),
    ("**pkg/work.py**:9000", "N205", "past the end"),
    ("**`pkg/work.py`**:9000", "N205", "past the end"),
    ("*pkg/work.py*, line 9000", "N205", "past the end"),
    ("`pkg/work.py`, see line 9000", "N205", "past the end"),
    ("`pkg/work.py`, véase la línea 9000", "N205", "past the end"),
    ("`pkg/work.py` (from line 9000)", "N205", "past the end"),
    ("L9000 of `pkg/work.py`", "N205", "past the end"),
    ("lines 9000–9003 in the file `pkg/work.py`", "N205", "past the end"),
    ("[`pkg/work.py`](https://example.com/):9000", "N205", "past the end"),
    ('[it](https://example.com/ "pkg/work.py:9000")', "N205", "past the end"),
    ("<p>pkg/work.py:9000</p>", "N205", "past the end"),
    ("[^1]: `pkg/work.py:L9000`", "N205", "past the end"),
    ("https://raw.example.org/o/s/@SHA@/pkg/work.py#L9000", "N201", "doesn't read"),
    ("https://example.org/o/s/raw/@SHA@/pkg/work.py#L9000", "N201", "doesn't read"),
    ("https://example.org/o/s/tree/@SHA@/pkg/work.py#L9000", "N205", "past the end"),
    ("https://example.org/o/s/-/blob/@SHA@/pkg/work.py#L9000-9003", "N205", "past the end"),
    ("https://gitlab.example.net/o/s/-/blob/@SHA@/pkg/work.py#L9000", "N216", "no source"),
    ("https://example.org/o/s/src/@SHA@/pkg/work.py#lines-9000", "N205", "past the end"),
    ("https://example.org/o/s/src/@SHA@/pkg/work.py#cl-9000", "N201", "doesn't read"),
    ("https://example.org/projects/O/repos/s/browse/pkg/work.py?at=@SHA@#9000", "N201", "n't read"),
    ("https://example.org/o/s/src/branch/main/pkg/work.py#L4-L6", "N201", "`main`, which moves"),
    ("https://example.org/o/s/src/branch/next/pkg/work.py#L4-L6", "N201", "`next`, which moves"),
    ("https://codeberg.example.net/o/s/src/commit/@SHA@/pkg/work.py#L9000", "N216", "no source"),
    ("https://sourcegraph.example.net/o/s@@SHA@/-/blob/pkg/work.py?L9000", "N201", "doesn't read"),
    ("https://git.example.net/cgit/s.git/tree/pkg/work.py?id=@SHA@#n9000", "N201", "doesn't read"),
    ("https://cs.example.net/s/+/main:pkg/work.py;l=9000", "N201", "doesn't read"),
    ("https://dev.example.net/o/_git/s?path=/pkg/work.py&line=9000", "N201", "doesn't read"),
    ("<https://git.example.net/cgit/s.git/tree/pkg/work.py#n9000>", "N201", "doesn't read"),
    ("[it](https://git.example.net/cgit/s.git/tree/pkg/work.py#n9000)", "N201", "doesn't read"),
    ("`https://git.example.net/cgit/s.git/tree/pkg/work.py#n9000`", "N201", "doesn't read"),
    ("https://example.org/o/s/blob/v2.0/pkg/work.py#L4-L6", "N216", "another commit"),
    ("https://example.org/o/s/blob/v9/pkg/work.py#L4-L6", "N201", "`v9`, which moves"),
    (f"{BLOB.replace('/s/', '/other/')}/pkg/work.py#L4-L6", "N216", "o/other`, which is no source"),
    (f"{PERMALINK}/works.py#L4-L6", "N203", "no source has"),
    (f"{PERMALINK}/other.py#L1-L2", "N209", "no name that the text gives"),
    (f"{PERMALINK}/gone.py", "N232", "`pkg/gone.py`, which `s` doesn't have"),
    (f"[the file]({PERMALINK}/gone.py)", "N232", "`pkg/gone.py`"),
    ("[code](../pkg/work.py#L4-L6)", "N201", "in no source"),
    ("`pkg/work.py#add_three`", "N201", "no symbol"),
    ("`pkg/work.py::add_three`", "N201", "no symbol"),
    ("`rk.py:4-6`", "N203", "no source has"),
    ("`docs/it's gone.md:L1`", "N203", "no source has"),
    ("`gone.py:4-6`", "N203", "no source has"),
    ("`lib/gone.rs:4`", "N203", "no source has"),
    ("`np.float32:L4`", "N203", "no source has"),
    ("node.js, line 18", "N203", "no source has"),
    ("`s:gone.zig:3`", "N203", "no source has"),
    ("`typo:gone.py:3`", "N203", "no source `typo`"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "code", "message"), REFUSED)
def test_an_unresolved_form_is_a_finding(lab: Lab, form: str, code: str, message: str) -> None:
    findings = [finding for finding in lab.judge(form).findings if finding.code == code]
    assert findings and message in findings[0].message


NO_CITATION = [
    "version 4:6 of `pkg/work.py`", "`pkg/work.py`, which has 11 lines",
    f"[the file]({PERMALINK}/work.py)", f"[`pkg/work.py`]({PERMALINK}/work.py)",
    "https://example.org/o/s/tree/@SHA@/pkg", "https://docs.example.org/guide.html#l12",
    "https://example.org/o/s/issues/12#issuecomment-9000",
    "[a page](https://example.org/handbook.md#section-2)", "`node.js:18`", "node.js:18, 20",
    "`tests/test_work.py::test_add`", "`np.float32:4`", "`docker.io/x:12`", "`a/b:3`",
    "`localhost:8080` and `db.internal:5432` and `localhost:5000/img:3`",
    '`File "x.py", line 3` and File "x.py", line 3, in f', r"`C:\x.py:12` and C:\x.py:12",
    "`C:/x.py:12` and C:/x.py:12",
]  # fmt: skip


@pytest.mark.parametrize("form", NO_CITATION)
def test_what_is_no_citation_is_neither_judged_nor_counted(lab: Lab, form: str) -> None:
    report = lab.judge(f"`pkg/work.py:L4-L6`. Also {form}", strict=True)
    assert report.findings == []
    assert [(note.citations, note.unjudged) for note in report.notes] == [(1, 0)]


SEVERAL = [
    "`pkg/work.py:4-6, 9-11`", "pkg/work.py:4-6, 9-11 show both", "`pkg/work.py:4-6`, `:9-11`",
    "`pkg/work.py:4-6` and `:9-11`", "pkg/work.py:4-6, :9-11", "pkg/work.py#L4-L6, #L9-L11",
    "**pkg/work.py**:4-6; :9-11",
]  # fmt: skip


@pytest.mark.parametrize("form", SEVERAL)
def test_all_lines_behind_one_path_are_read(lab: Lab, form: str) -> None:
    report = lab.judge(f"and `add_two` by {form}", strict=True)
    assert (report.findings, [note.citations for note in report.notes]) == ([], [2])
    places = sorted(lock_file.load(lab.folder / "citations.lock").citations["s"])
    assert places == ["pkg/work.py:L4-L6", "pkg/work.py:L9-L11"]


def test_numbers_that_follow_a_citation_as_words_are_none(lab: Lab) -> None:
    for rest in ("40 others", "at 10:15", "`:smile:`", "`[:9]`", "2 and 3 of them", ": 9 lines"):
        report = lab.judge(f"`pkg/work.py:4-6`, {rest}")
        assert [note.citations for note in report.notes] == [1], rest


UNJUDGED = [
    "`pkg/work.py` adds, as its line 9 says",
    "what line 9 adds stands in `work.py`",
    "pkg/work.py. What L9 of it adds",
    "`pkg/work.py:L4-L6`; line 9 adds two",
]


@pytest.mark.parametrize("text", UNJUDGED)
def test_a_known_path_with_lines_near_by_is_only_strictly_refused(lab: Lab, text: str) -> None:
    paragraph = f"`pkg/work.py:L4-L6` is `add_one`.\n\nAbout `add_one`: {text}."
    lab.write(paragraph)
    counted, strict = lab.check(), lab.check(strict=True)
    assert counted.findings == [] and [note.unjudged for note in counted.notes] == [1]
    assert [finding.code for finding in strict.findings] == ["N230"]


def test_a_path_that_no_tree_has_is_not_counted(lab: Lab) -> None:
    report = lab.judge("`pkg/work.py:L4-L6`; `mine/run.py` prints it, on its line 9", strict=True)
    assert report.findings == []


def test_without_a_tree_only_an_ending_of_code_makes_a_path(lab: Lab) -> None:
    lab.judge("`pkg/work.py:L4-L6`")
    lab.write("The name `add_one`: `pkg/work.py:L4-L6`, `np.float32:4`, `a/b:3`, `gone.py:9`")
    found = lab.check(mirror=False).findings
    assert [(each.code, "gone.py" in each.message) for each in found] == [("N213", True)]


def test_lines_of_a_citation_near_by_are_its_own(lab: Lab) -> None:
    report = lab.judge("`pkg/work.py:L4-L6`, where line 5 adds", strict=True)
    assert report.findings == []


@pytest.mark.parametrize(
    "front",
    ["read: https://example.org/o/s/blob/@SHA@/pkg/work.py#L4-L6\n", "read: pkg/work.py:L4-L6\n"],
)
def test_a_citation_in_the_front_matter_is_refused(lab: Lab, front: str) -> None:
    lab.write("`add_one` is `pkg/work.py:L4-L6`.", front)
    assert [(finding.code, finding.span.row) for finding in lab.check().findings] == [("N201", 5)]


def test_a_file_in_the_front_matter_must_be_there(lab: Lab) -> None:
    lab.write("`add_one` is `pkg/work.py:L4-L6`.", f"read: {PERMALINK}/gone.py\n")
    assert [(finding.code, finding.span.row) for finding in lab.check().findings] == [("N232", 5)]


def test_a_link_from_the_page_is_read_in_the_same_repository(self_citing_lab: Lab) -> None:
    report = self_citing_lab.judge("[code](../pkg/work.py#L4-L6)")
    assert report.findings == []
    assert [note.proved for note in report.notes] == [1]
    assert {
        finding.code
        for finding in self_citing_lab.judge("[code](../pkg/work.py#L9-L9000)").findings
    } == {"N205"}
    assert {
        finding.code
        for finding in self_citing_lab.judge("[`work.py:9`](../pkg/work.py#L4)").findings
    } == {"N231"}


@pytest.mark.parametrize(
    ("form", "place"),
    [
        ("`../pkg/work.py:4-6`", "s:pkg/work.py:L4-L6"),
        ("[code](/pkg/work.py?plain=1#L4-L6)", "s:pkg/work.py:L4-L6"),
        ("https://code.example/o/own/blob/main/pkg/work.py#L4-L6", "s:pkg/work.py:L4-L6"),
        ("https://code.example/o/own/blob/@SHA@/pkg/work.py#L4-L6", "s:pkg/work.py:L4-L6"),
        ("`beside.py:4-6`", "lab/beside.py:L4-L6"),
        ("`./beside.py:4-6`", "s:lab/beside.py:L4-L6"),
    ],
)
def test_a_form_of_ones_own_repository_is_read(self_citing_lab: Lab, form: str, place: str) -> None:
    lab = self_citing_lab
    git(lab.root, "remote", "add", "origin", "git@code.example:o/own.git")
    for name in ("pkg/beside.py", "lab/beside.py", "app/beside.py"):
        (lab.root / name).write_text(WORK)
    lab.commit = commit_all(lab.root)
    lab.folder.joinpath("s-sha.txt").write_text(f"{lab.commit}\n")
    assert lab.judge(form).findings == []
    lock = lock_file.load(lab.folder / "citations.lock")
    assert lock and list(lock.citations["s"]) == [place]


def test_a_link_to_ones_own_branch_is_a_finding_once_it_moved(self_citing_lab: Lab) -> None:
    lab = self_citing_lab
    git(lab.root, "remote", "add", "origin", "git@code.example:o/own.git")
    lab.folder.joinpath("s-sha.txt").write_text(f"{git(lab.root, 'rev-parse', 'HEAD')}\n")
    assert lab.judge("https://code.example/o/own/blob/main/pkg/work.py#L4-L6").findings == []
    git(lab.root, "commit", "-q", "--allow-empty", "-m", "more")
    assert [finding.code for finding in lab.check().findings] == ["N201"]


def test_the_end_of_two_paths_is_refused_with_both(lab: Lab) -> None:
    (lab.source / "lib").mkdir()
    (lab.source / "lib/work.py").write_text(WORK)
    lab.commit = commit_all(lab.source, "two of a name")
    lab.folder.joinpath("s-sha.txt").write_text(f"{lab.commit}\n")
    findings = lab.judge("`work.py:4-6`").findings
    assert [finding.code for finding in findings] == ["N201"]
    assert "`lib/work.py`, `pkg/work.py`" in findings[0].message


def test_without_the_tree_the_lock_says_which_path_an_end_means(lab: Lab) -> None:
    assert lab.judge("`work.py:4-6`").findings == []
    without = lab.check(mirror=False)
    assert without.findings == []
    lab.write("The name `add_one` is shown by `work.py:9-11`")
    assert "N213" in {finding.code for finding in lab.check(mirror=False).findings}


def test_every_place_of_a_page_is_read_once_and_in_order() -> None:
    text = f"`a/b.py:1-3, 9`, [c.py:4]({PERMALINK}/c.py#L4), d/e.py:5 and `f/g.py`, line 6"
    citations = read(f"---\ntitle: x\n---\n\n{text.replace('@SHA@', 'ab' * 20)}\n").citations
    assert [(citation.path, citation.first) for citation in citations] == [
        ("a/b.py", 1),
        ("a/b.py", 9),
        ("pkg/c.py", 4),
        ("d/e.py", 5),
        ("f/g.py", 6),
    ]


def first_finding(report: Report, code: str) -> Finding:
    """Return the first finding with a code."""
    return next(finding for finding in report.findings if finding.code == code)


def test_a_finding_of_a_label_stands_at_the_link_and_says_both_places(lab: Lab) -> None:
    finding = first_finding(lab.judge(f"[`work.py:L9-L11`]({PERMALINK}/work.py#L4-L6)"), "N231")
    assert "`work.py:L9-L11`" in finding.found and "#L4-L6" in finding.found
    line = (lab.folder / "note.md").read_text().split("\n")[finding.span.row - 1]
    assert line[finding.span.column - 1 :].startswith("[`work.py")


def test_a_code_span_with_its_backticks_is_the_place_of_its_first_citation() -> None:
    text = "See `a/b.py:L1`, ``c.py:L2``, `d.py:1-3, 9` and `e.py:L4-L6`."
    citations = read(f"{text}\n").citations
    places = [text[each.span.column - 1 : each.span.end_column - 1] for each in citations]
    assert places == ["`a/b.py:L1`", "``c.py:L2``", "`d.py:1-3, 9`", "9", "`e.py:L4-L6`"]


def test_a_citation_is_called_as_it_is_written_up_to_its_own_range() -> None:
    text = "`a/b.py:1-3, 9 and 12`, `'c.py:L4-L6'` and `d.py:L7.`"
    called = [citation.text for citation in read(f"{text}\n").citations]
    assert called == ["a/b.py:1-3", "9", "12", "'c.py:L4-L6'", "d.py:L7."]
