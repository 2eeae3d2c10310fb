"""`shardbook new` creates a complete lab, or nothing."""

from pathlib import Path

import pytest

from notelab.commands import starting
from notelab.lab.lab import load
from pages.blocks import ROOT
from tests.notelab.real import real_bench
from tests.notelab.scratch import Scratch, check_lab, commit_all, git

FINISHED = ROOT / "experiments/35-reading-notes"


@pytest.mark.parametrize(("language", "section"), [("en", "Communication"), ("es", "Comunicación")])
def test_a_new_reading_lab_asks_what_the_finished_one_does_and_lacks_what_is_to_be_written(
    tmp_path: Path, language: str, section: str
) -> None:
    starting.from_lab("mine", str(FINISHED), language, tmp_path)
    new_lab, finished = load(tmp_path / "mine"), load(FINISHED)
    assert new_lab.languages == [language]
    assert new_lab.sources == finished.sources
    assert new_lab.file.diagrams == finished.file.diagrams
    notes = {name: note for name, note in finished.file.notes.items() if "/" not in name}
    assert new_lab.file.notes == notes
    for source in new_lab.sources.values():
        assert (new_lab.folder / source.pin).read_bytes() == (FINISHED / source.pin).read_bytes()
    assert f"section {section}" in (tmp_path / "mine/synthesis.md").read_text("utf-8")
    report = check_lab(tmp_path / "mine", real_bench())
    # Choices, what the closing says, what the diagrams mark; both diagrams draw, and draw right.
    assert {finding.code for finding in report.findings} == {"N105", "N111", "N112", "N304"}
    assert sum(note.diagrams for note in report.notes) == 2
    assert sum(note.words + note.choices for note in report.notes) == 0


def test_a_bare_name_goes_beside_the_other_labs_with_the_next_step(scratch: Scratch) -> None:
    done = scratch.run("new", "mine", "--from", "01-scratch", "--language", "es")
    assert done.returncode == 0, done
    *_, following = done.stdout.splitlines()
    assert following.endswith("`shardbook check experiments/mine`")
    new_lab = scratch.book / "experiments/mine"
    assert {path.name for path in new_lab.iterdir()} == {"lab.toml", "up-sha.txt", "note.md"}
    assert "Una nota de prueba" in (new_lab / "note.md").read_text("utf-8")
    assert "../01-scratch/note.md" in (new_lab / "lab.toml").read_text("utf-8")
    assert not list(scratch.book.glob("experiments/.*"))


def test_a_new_lab_compares_with_the_same_earlier_pages(scratch: Scratch) -> None:
    scratch.book.joinpath("01-before.md").write_text("# Before\n\nNothing.\n", "utf-8")
    scratch.replace("lab.toml", "[lab]", '[lab]\nmin-new-choices = 2\nbefore = ["../../0*.md"]')
    assert scratch.run("new", "readings/mine", "--from", "01-scratch").returncode == 0
    table = load(scratch.book / "readings/mine").file.lab
    assert (table.min_new_choices, table.before) == (2, ["../../0*.md"])
    assert scratch.run("new", "../mine", "--from", "01-scratch").returncode == 0
    assert load(scratch.root / "mine").file.lab.before == []


def test_a_lab_beside_the_repository_starts_without_what_it_cannot_reach(scratch: Scratch) -> None:
    done = scratch.run("new", "../mine", "--from", "01-scratch")
    assert done.returncode == 0, done
    assert "solution" not in (scratch.root / "mine/lab.toml").read_text("utf-8")
    assert scratch.run("check", "../mine").returncode == 1


def test_a_lab_in_another_language_has_hints_and_a_heading_to_fill(scratch: Scratch) -> None:
    done = scratch.run("new", "mine", "--from", "01-scratch", "--language", "fr")
    assert done.returncode == 0, done
    new_lab = scratch.book / "experiments/mine"
    note = (new_lab / "note.md").read_text("utf-8")
    assert "The lab asks for: at least 2 choices" in note and "\n## …\n" in note
    assert load(new_lab).file.notes["note.md"].closing_mentions["fr"] == ["lab 02"]
    checked = scratch.run("check", "experiments/mine")
    finding = "N109 experiments/mine/lab.toml sets no `closing-heading.fr`"
    assert finding in checked.stdout
    lab = (new_lab / "lab.toml").read_text("utf-8")
    lab = lab.replace('closing-heading.fr = ""', 'closing-heading.fr = "Relier les points"')
    (new_lab / "lab.toml").write_text(lab, "utf-8")
    (new_lab / "note.md").write_text(note.replace("## …", "## Relier les points"), "utf-8")
    checked = scratch.run("check", "experiments/mine")
    assert "N111" in checked.stdout and "N109" not in checked.stdout


def test_a_repository_without_a_commit_says_what_to_do(scratch: Scratch, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    done = scratch.run("new", str(tmp_path / "mine"), "--repo", ".")
    assert done.returncode == 2 and "hint: commit something first" in done.stderr
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("language", ["french", "FR", "f", "", "../fr"])
def test_a_language_is_two_letters(scratch: Scratch, language: str) -> None:
    for origin in (("--from", "01-scratch"), ("--repo", ".")):
        done = scratch.run("new", "mine", *origin, "--language", language)
        assert done.returncode == 2 and "is no language" in done.stderr
    assert not scratch.book.joinpath("experiments/mine").exists()


def test_a_lab_in_new_folders_makes_them(scratch: Scratch) -> None:
    done = scratch.run("new", "lectures/2026/x", "--from", "01-scratch")
    assert done.returncode == 0, done
    assert "`shardbook check lectures/2026/x`" in done.stdout
    assert {path.name for path in (scratch.book / "lectures/2026/x").iterdir()} >= {"lab.toml"}


def test_folders_made_for_a_lab_that_fails_go_again_and_a_file_in_the_way_is_named(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting.lab_file, "load", _fail)
    with pytest.raises(OSError, match="disk full"):
        starting.from_lab("lectures/2026/x", "01-scratch", "en", scratch.book)
    assert not scratch.book.joinpath("lectures").exists()
    scratch.book.joinpath("lectures").write_text("mine\n")
    done = scratch.run("new", "lectures/2026/x", "--from", "01-scratch")
    assert done.returncode == 2 and "lectures is not a folder" in done.stderr
    assert scratch.book.joinpath("lectures").read_text() == "mine\n"


def _fail(folder: Path) -> None:
    raise OSError("disk full")


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_there_already_is_never_written_over(scratch: Scratch, kind: str) -> None:
    place = scratch.book / "experiments/mine"
    if kind == "folder":
        place.mkdir()
        place.joinpath("note.md").write_text("mine\n")
    elif kind == "file":
        place.write_text("mine\n")
    else:
        place.symlink_to(scratch.root / "nowhere")
    done = scratch.run("new", "mine", "--from", "01-scratch")
    assert done.returncode == 2 and "already exists" in done.stderr
    if kind == "folder":
        assert [path.name for path in place.iterdir()] == ["note.md"]
    assert not (scratch.root / "nowhere").exists()


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "-x", "a b", "a\x1b[31m", "n" * 200])
def test_a_name_that_can_be_no_folders_is_refused(scratch: Scratch, name: str) -> None:
    done = scratch.run("new", "--from", "01-scratch", "--", name)
    assert done.returncode == 2 and "cannot name a lab" in done.stderr, done
    assert [path.name for path in scratch.lab.parent.iterdir()] == ["01-scratch"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "no-such-lab"], "the labs are: 01-scratch"),
        (["--from", "01-scratch", "--repo", "."], "or --repo with --ref"),
        (["--repo", "https://example.invalid/up.git"], "--repo URL --ref REF"),
        (["--repo", "ext::sh -c x", "--ref", "v1"], "no address of a repository"),
        ([], "or --repo with --ref"),
    ],
)
def test_a_lab_that_cannot_be_started_says_why_and_leaves_nothing(
    scratch: Scratch, arguments: list[str], message: str
) -> None:
    done = scratch.run("new", "mine", *arguments)
    assert done.returncode == 2 and message in done.stderr, done
    assert [path.name for path in scratch.lab.parent.iterdir()] == ["01-scratch"]


def test_a_lab_about_any_repository_is_pinned_where_it_is_made(scratch: Scratch) -> None:
    url = "https://example.invalid/group/up.git"
    elsewhere = scratch.root / "elsewhere"
    done = scratch.run("new", str(elsewhere), "--repo", url, "--ref", "v1")
    assert done.returncode == 0, done
    assert (elsewhere / "up-sha.txt").read_text("utf-8") == f"{scratch.commit}\n"
    note = elsewhere / "reading.md"
    text = note.read_text("utf-8")
    choice = "- **Counted.** The count `uses` grows before the work: `pkg/scaler.py:L14-L15`.\n"
    note.write_text(text + choice)
    assert scratch.run("lock", str(elsewhere)).returncode == 0
    report = scratch.run("check", str(elsewhere)).stdout
    assert "1 citation: 1 proved" in report and "N2" not in report
    gone = scratch.run("new", "gone", "--repo", url, "--ref", "no-such-tag")
    assert gone.returncode == 2 and not (scratch.book / "experiments/gone").exists()


def own_lab(scratch: Scratch) -> Path:
    """Start a lab about the repository that it is in, whose one commit has one source file."""
    scratch.book.joinpath("tool.py").write_text("def double(x):\n    return 2 * x\n")
    commit_all(scratch.book, "one")
    done = scratch.run("new", "own", "--repo", ".")
    assert done.returncode == 0, done
    return scratch.book / "experiments/own"


def test_a_lab_may_cite_its_own_repository_at_head(scratch: Scratch) -> None:
    lab = own_lab(scratch)
    assert (lab / "book-sha.txt").read_text("utf-8").strip() == git(
        scratch.book, "rev-parse", "HEAD"
    )
    note = lab / "reading.md"
    choice = "- **Twice.** `double` gives twice what it is given: `tool.py:L1-L2`.\n"
    note.write_text(note.read_text("utf-8") + choice)
    # What is cited is the commit's, whatever the working tree holds by now.
    scratch.book.joinpath("tool.py").write_text("x = 1\n")
    assert scratch.run("lock", "experiments/own").returncode == 0
    assert "1 citation: 1 proved" in scratch.run("check", "--offline", "experiments/own").stdout
    git(scratch.book, "commit", "-qam", "two")
    assert scratch.run("pin", "book", "HEAD").returncode == 0
    assert "N205" in scratch.run("check", "experiments/own").stdout


@pytest.mark.parametrize("path", ["..", "/etc", "tools", "./", "../01-scratch"])
def test_no_other_path_than_the_repository_itself_is_a_source(scratch: Scratch, path: str) -> None:
    lab = own_lab(scratch)
    text = (lab / "lab.toml").read_text("utf-8")
    (lab / "lab.toml").write_text(text.replace('path = "."', f'path = "{path}"'))
    done = scratch.run("check", "experiments/own")
    assert done.returncode == 2 and 'path can only be "."' in done.stderr
