"""`shardbook adopt`: notes that exist become a lab, with the commit that was read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from notelab.audit.adopt import adopt
from tests.notelab.audit.test_audit import CODE
from tests.notelab.in_process import run_shardbook
from tests.notelab.scratch import commit_all, copy_filled, git, make_repository

NOTE = """\
# Rings

- `Ring.send` is in `src/ring.py:{send}`.
- `build_frame` is in `src/ring.py:{build}`.
- The header comes from `encode_header`: `src/ring.py:{header}`.
- `LIMIT` is `src/ring.py:{limit}`.
"""
OLD = {"send": 9, "build": 16, "header": 18, "limit": 3}


class Notes:
    """Notes in one repository about the code in another, which has three tags."""

    def __init__(self, root: Path) -> None:
        self.root, self.book, self.code = root, root / "book", root / "code"
        copy_filled(make_notes, root)

    def write(self, text: str) -> None:
        (self.book / "docs/notes.md").write_text(text)
        commit_all(self.book, "notes")

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environment = {
            "PYTHONPATH": ":".join(sys.path),
            "SHARDBOOK_CACHE": str(self.root / "cache"),
            "PATH": os.environ["PATH"],
        }
        return run_shardbook(*arguments, folder=self.book, environment=environment)

    def adopt(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        mirror = ("--mirror", f"code={self.code}")
        return self.run("adopt", "docs/notes.md", *(arguments or mirror))

    def check(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self.run("check", "docs", "--mirror", f"code={self.code}", *arguments)

    def pin(self) -> str:
        return (self.book / "docs/code-sha.txt").read_text().strip()

    def baseline(self) -> dict[str, dict[str, int]]:
        path = self.book / "docs/baseline.json"
        return json.loads(path.read_text())["findings"] if path.exists() else {}


def make_notes(root: Path) -> None:
    book, code = root / "book", root / "code"
    make_repository(code, {"src/ring.py": CODE})
    git(code, "tag", "v1")
    for tag, lines in (("v2", 2), ("v3", 5)):
        (code / "src/ring.py").write_text("import os\n" * lines + CODE)
        commit_all(code, tag)
        git(code, "tag", tag)
    make_repository(book, {"docs/notes.md": NOTE.format(**OLD)})


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


@pytest.mark.parametrize(("tag", "shift"), [("v1", 0), ("v2", 2), ("v3", 5)])
def test_the_commit_that_was_read_is_found_by_the_names(notes: Notes, tag: str, shift: int) -> None:
    notes.write(NOTE.format(**{name: row + shift for name, row in OLD.items()}) + f"\n{tag}\n")
    done = notes.adopt()
    assert done.returncode == 0, done.stderr
    assert f"the notes read {tag}: 4 of 4 citations fit; the next best" in done.stdout
    assert notes.pin() == git(notes.code, "rev-parse", tag)
    assert notes.check().returncode == 0


def test_of_tags_that_fit_alike_the_newest_is_taken_and_that_is_said(notes: Notes) -> None:
    (notes.code / "README").write_text("new\n")
    commit_all(notes.code, "v4")
    git(notes.code, "tag", "v4")
    notes.write(NOTE.format(**{name: row + 5 for name, row in OLD.items()}))
    done = notes.adopt()
    assert "the notes read v4: 4 of 4" in done.stdout and "others fit alike" in done.stdout


def test_permalinks_name_the_source_and_the_pin(notes: Notes) -> None:
    commit = git(notes.code, "rev-parse", "v2")
    link = f"https://example.org/team/Code/blob/{commit}/src/ring.py#L18"
    notes.write(f"# Rings\n\nA [frame]({link}) is built by `build_frame`.\n")
    done = notes.adopt(
        "--source", "code=https://example.org/team/Code", "--mirror", f"code={notes.code}"
    )
    assert done.returncode == 0, done.stderr
    assert notes.pin() == commit
    assert 'url = "https://example.org/team/Code"' in (notes.book / "docs/lab.toml").read_text()
    assert notes.check().returncode == 0


def test_findings_of_today_are_in_the_baseline_and_only_new_ones_fail(notes: Notes) -> None:
    notes.write(NOTE.format(**OLD | {"limit": 900}))
    assert notes.adopt().returncode == 0
    assert list(notes.baseline()) == ["notes.md"]
    done = notes.check()
    assert done.returncode == 0 and "1 in the baseline" in done.stdout
    notes.write("New.\n\n" + NOTE.format(**OLD | {"limit": 900, "send": 800}))
    done = notes.check()
    assert done.returncode == 1
    assert "L800" in done.stdout or "800" in done.stdout
    assert ":900" not in done.stdout.partition("\n\n")[0]


def test_the_baseline_shrinks_when_asked_and_never_grows(notes: Notes) -> None:
    notes.write(NOTE.format(**OLD | {"limit": 900, "send": 800}))
    notes.adopt()
    before = notes.baseline()
    notes.write(NOTE.format(**OLD | {"limit": 900, "build": 700}))
    assert notes.check().returncode == 1
    assert notes.baseline() == before
    notes.check("--baseline")
    after = notes.baseline()
    assert sum(after["notes.md"].values()) < sum(before["notes.md"].values())
    assert set(after["notes.md"]) <= set(before["notes.md"])
    notes.write(NOTE.format(**OLD))
    notes.run("lock", "docs", "--mirror", f"code={notes.code}")
    assert notes.check("--baseline").returncode == 0
    assert notes.baseline() == {}


def test_notes_about_their_own_repository_follow_its_working_tree(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    (notes.book / "src").mkdir()
    (notes.book / "src/ring.py").write_text(CODE)
    notes.write(NOTE.format(**OLD))
    done = notes.run("adopt", "docs/notes.md")
    assert done.returncode == 0, done.stderr
    assert 'pin = "HEAD"' in (notes.book / "docs/lab.toml").read_text()
    assert notes.run("check", "docs").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--source", "code=https://example.invalid/code"),
         ("nothing says which", "--mirror code=")),
        (("--source", "code=https://example.org/c", "--mirror", "code=none"),
         ("none is no clone",)),
        (("--lab", "docs"), ["--source NAME=URL"]),
    ],
)  # fmt: skip
def test_without_a_clone_the_error_says_what_to_give(
    notes: Notes, arguments: tuple[str, ...], words: list[str]
) -> None:
    done = notes.adopt(*arguments)
    assert done.returncode == 2
    assert all(each in done.stderr for each in words)
    assert not (notes.book / "docs/lab.toml").exists()


@pytest.mark.parametrize("name", ["lab.toml", "code-sha.txt"])
def test_no_file_that_exists_is_overwritten(notes: Notes, name: str) -> None:
    (notes.book / "docs" / name).write_text("mine\n")
    done = notes.adopt()
    assert done.returncode == 2 and "exists already" in done.stderr
    assert [path.name for path in (notes.book / "docs").iterdir()].count(name) == 1
    assert (notes.book / "docs" / name).read_text() == "mine\n"
    assert name == "lab.toml" or not (notes.book / "docs/lab.toml").exists()


@pytest.mark.parametrize("text", ["[]", '{"version": 2, "findings": {}}'])
def test_a_baseline_that_is_none_is_named(notes: Notes, text: str) -> None:
    assert "fit alike" not in notes.adopt().stdout  # a tag and its commit are one reading
    (notes.book / "docs/baseline.json").write_text(text)
    done = notes.check()
    assert done.returncode == 2 and "not a baseline" in done.stderr


def test_a_repository_in_which_nothing_fits_is_refused(notes: Notes) -> None:
    notes.write(NOTE.replace("ring.py", "other.py").format(**OLD))
    done = notes.adopt()
    assert done.returncode == 2 and "at no commit" in done.stderr


def test_a_whole_commit_comes_before_a_branch(notes: Notes) -> None:
    commit = git(notes.code, "rev-parse", "v1")
    url = "https://example.org/o/code/blob"
    notes.write(f"`LIMIT` {url}/main/src/ring.py#L3\n\n`LIMIT` {url}/{commit}/src/ring.py#L3\n")
    done = notes.adopt("--lab", "docs")
    assert f"lead to {commit}" in done.stdout + done.stderr


def test_a_clone_that_names_no_address_leaves_no_path_of_this_machine(notes: Notes) -> None:
    done = notes.adopt()
    text = (notes.book / "docs/lab.toml").read_text()
    assert "https://example.invalid/code" in text and str(notes.root) not in text
    assert "code's clone has no remote `origin`; in lab.toml, replace" in done.stdout
    assert notes.check().returncode == 0


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_kill_leaves_no_lab_without_its_baseline(
    notes: Notes, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """A lab.toml without a baseline made every finding of the past fail, and `adopt` refuse."""
    notes.write(NOTE.format(**OLD | {"limit": 900}))
    monkeypatch.chdir(notes.book)
    monkeypatch.setenv("SHARDBOOK_CACHE", str(notes.root / "cache"))
    replace, written = Path.replace, []

    def kill(path: Path, target: Path) -> Path:
        if target.parent == notes.book / "docs":
            if len(written) == at:
                raise KeyboardInterrupt
            written.append(target.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", kill)
    with pytest.raises(KeyboardInterrupt):
        adopt([notes.book / "docs/notes.md"], None, (), (f"code={notes.code}",))
    assert written == ["citations.lock", "baseline.json", "code-sha.txt"][:at]
    assert not (notes.book / "docs/lab.toml").exists()


def test_of_tags_that_fit_alike_the_one_that_the_notes_name_is_taken(notes: Notes) -> None:
    git(notes.code, "checkout", "-q", "v1")
    (notes.code / "other.py").write_text("other = 1\n")
    newer = commit_all(notes.code, "a file that is not cited")
    git(notes.code, "tag", "v1.6")
    done = notes.adopt()
    assert "the newest is taken" in done.stdout and notes.pin() == newer
    for name in ("lab.toml", "code-sha.txt", "citations.lock"):
        (notes.book / "docs" / name).unlink()
    notes.write("Read at v1.\n\n" + NOTE.format(**OLD))
    done = notes.adopt()
    assert "the notes name this one" in done.stdout
    assert notes.pin() == git(notes.code, "rev-parse", "v1^{commit}")


def test_lines_inside_of_a_named_function_and_ends_of_two_paths_are_dated(notes: Notes) -> None:
    for path in ("lib/ring.py", "src/other.py"):
        (notes.code / path).parent.mkdir(exist_ok=True)
        (notes.code / path).write_text("\n" * 40)
    commit_all(notes.code, "more files")
    git(notes.code, "tag", "v4")
    inside = "- `Ring` sends: `ring.py:13`.\n- `build_frame` returns (`ring.py:19`).\n"
    notes.write(
        f"# Rings\n\n{inside}- `LIMIT` is `ring.py:3`.\n\n## `build_frame`\n\nring.py:18-19\n"
    )
    done = notes.adopt()
    assert "the notes read v1: 4 of 4 citations fit" in done.stdout, done.stdout + done.stderr


def test_a_commit_without_a_tag_is_found_among_those_before_the_notes(notes: Notes) -> None:
    read = ""
    for lines in (9, 30):
        (notes.code / "src/ring.py").write_text("import os\n" * lines + CODE)
        read = read or commit_all(notes.code, f"{lines} lines")
    notes.write(NOTE.format(**{name: row + 9 for name, row in OLD.items()}))
    done = notes.adopt()
    assert f"the notes read {read[:12]}: 4 of 4" in done.stdout, done.stdout
    assert notes.pin() == read


def test_quotations_date_citations_next_to_which_nothing_is_named(notes: Notes) -> None:
    lines = CODE.split("\n")
    quoted = [(first, "\n".join(lines[first - 1 : first + 2])) for first in (8, 15)]
    paragraphs = [f"`src/ring.py:{n + 2}-{n + 4}`\n\n```python\n{text}\n```" for n, text in quoted]
    notes.write("\n\n".join(["# Rings", *paragraphs]) + "\n")
    done = notes.adopt()
    assert "the notes read v2: 2 of 2 citations fit; the next best" in done.stdout, done.stderr
    assert notes.pin() == git(notes.code, "rev-parse", "v2")


def test_of_tags_that_fit_alike_the_version_that_the_notes_name_is_taken(notes: Notes) -> None:
    for tag in ("release-1.2.3", "release-1.2.30"):
        (notes.code / "README").write_text(f"{tag}\n")
        commit_all(notes.code, tag)
        git(notes.code, "tag", tag)
    text = NOTE.format(**{name: row + 5 for name, row in OLD.items()})
    (notes.book / "docs/index.md").write_text("The notes read version 1.2.3.\n")
    notes.write(text)
    done = notes.adopt("docs/index.md", "--mirror", f"code={notes.code}")
    assert "the notes read release-1.2.3: 4 of 4" in done.stdout
    assert "the notes name this one" in done.stdout


def test_of_two_tags_of_a_commit_the_one_that_is_named_or_shorter_is_the_release(
    notes: Notes,
) -> None:
    git(notes.code, "tag", "v3-rc.1", "v3")
    git(notes.code, "tag", "v0.3.0", "v3")
    text = NOTE.format(**{name: row + 5 for name, row in OLD.items()})
    notes.write(text)
    assert "the notes read v3: 4 of 4" in notes.adopt().stdout
    for name in ("lab.toml", "code-sha.txt", "citations.lock"):
        (notes.book / "docs" / name).unlink()
    notes.write(f"{text}\nThis is 0.3.0.\n")
    assert "the notes read v0.3.0: 4 of 4" in notes.adopt().stdout
    assert 'release = "v0.3.0"' in (notes.book / "docs/lab.toml").read_text()
