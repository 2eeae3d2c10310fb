"""A pin belongs to one lab, and only the pin of the named lab is written."""

import shutil
from pathlib import Path

import pytest

from notelab.files import write_files
from tests.notelab.scratch import UPSTREAM, Scratch, commit_all, git


def add_second_lab(scratch: Scratch) -> None:
    """Add a lab that owns a source of the same name, with its pin still missing."""
    second_lab = scratch.book / "experiments/mine"
    shutil.copytree(scratch.lab, second_lab, ignore=shutil.ignore_patterns("up-sha.txt"))


def test_a_source_that_two_labs_own_is_pinned_only_in_a_named_one(scratch: Scratch) -> None:
    add_second_lab(scratch)
    before = scratch.read("up-sha.txt"), scratch.read("citations.lock")
    done = scratch.run("pin", "up", "v1")
    assert done.returncode == 2, done
    assert "experiments/01-scratch, experiments/mine" in done.stderr
    assert "hint: name the one you mean: `shardbook pin up v1 --lab experiments/" in done.stderr
    assert (scratch.read("up-sha.txt"), scratch.read("citations.lock")) == before
    assert not (scratch.book / "experiments/mine/up-sha.txt").exists()
    assert "`shardbook pin up 'v1^{}' --lab" in scratch.run("pin", "up", "v1^{}").stderr
    carried = scratch.run("repin", "up", "v1", "--write")
    assert carried.returncode == 2 and "`shardbook repin up v1 --lab experiments/" in carried.stderr


def test_the_help_of_a_missing_pin_is_the_command_that_writes_it(scratch: Scratch) -> None:
    add_second_lab(scratch)
    before = scratch.read("up-sha.txt")
    output = scratch.run("check", "experiments/mine").stdout
    help_line = next(line for line in output.splitlines() if "`shardbook pin up REF" in line)
    typed = help_line.partition("`shardbook ")[2].rstrip("`").replace("REF", "v1").split()
    assert scratch.run(*typed).returncode == 0
    pin_file = scratch.book / "experiments/mine/up-sha.txt"
    assert pin_file.read_text("utf-8") == f"{scratch.commit}\n"
    assert scratch.read("up-sha.txt") == before


def test_the_help_of_a_citation_that_waits_is_a_command_that_runs(scratch: Scratch) -> None:
    add_second_lab(scratch)
    commit_all(scratch.book, "notes")
    scratch.upstream.joinpath("pkg/scaler.py").write_text(UPSTREAM.replace("math.hypot", "max"))
    git(scratch.upstream, "commit", "-q", "-a", "-m", "two")
    lab = "experiments/01-scratch"
    scratch.run("repin", "up", git(scratch.upstream, "rev-parse", "HEAD"), "--lab", lab, "--write")
    output = scratch.run("check", lab).stdout
    help_line = next(line for line in output.splitlines() if "`shardbook repin" in line)
    again = scratch.run(*help_line.partition("`shardbook ")[2].partition("`")[0].split())
    assert again.returncode == 0 and "1 edited" in again.stdout, again


def test_the_lab_files_names_follow_a_pin(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # nobody has such a wheel
    named = 'pin = "up-sha.txt"\nrelease = "v1"\nwheel = "up==1"  # the first'
    scratch.replace("lab.toml", 'pin = "up-sha.txt"', named)
    before = scratch.read("lab.toml")
    git(scratch.upstream, "commit", "-q", "--allow-empty", "-m", "two")
    git(scratch.upstream, "tag", "v2")
    output = scratch.run("pin", "up", "v2").stdout
    assert "wrote experiments/01-scratch/lab.toml\n" in output
    assert scratch.read("lab.toml") == before.replace('"v1"', '"v2"').replace("==1", "==2")
    assert " (v2)  " in scratch.run("check", "-v").stdout
    scratch.run("pin", "up", "v1")
    assert scratch.read("lab.toml") == before


def test_a_commit_is_no_release_and_a_wheel_of_another_one_is_said(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    named = 'pin = "up-sha.txt"\nrelease = "v1"\nwheel = "up==1"'
    scratch.replace("lab.toml", 'pin = "up-sha.txt"', named)
    git(scratch.upstream, "commit", "-q", "--allow-empty", "-m", "two")
    commit = git(scratch.upstream, "rev-parse", "HEAD")
    done = scratch.run("pin", "up", commit)
    message = (
        f"experiments/01-scratch/lab.toml named up==1; write the wheel of {commit} if there is one"
    )
    assert message in done.stdout
    assert 'release = ""\nwheel = ""' in scratch.read("lab.toml")


def test_a_source_shared_by_two_labs_is_pinned_without_asking(scratch: Scratch) -> None:
    borrower = scratch.book / "experiments/borrower"
    borrower.mkdir()
    text = '[lab]\ntitle = "B"\nsources-from = "../01-scratch"\n'
    borrower.joinpath("lab.toml").write_text(text)
    assert scratch.run("pin", "up", "v1").returncode == 0


@pytest.mark.parametrize("name", ["up-sha.txt", "citations.lock"])
def test_a_folder_in_a_files_place_is_named_in_an_error(scratch: Scratch, name: str) -> None:
    scratch.lab.joinpath(name).unlink()
    scratch.lab.joinpath(name).mkdir()
    done = scratch.run("pin", "up", "v1")
    messages = {"up-sha.txt": "Is a directory", "citations.lock": "it is a folder, not a file"}
    assert done.returncode == 2 and messages[name] in done.stderr
    assert done.stderr.startswith(f"error: experiments/01-scratch/{name}")


def test_whole_files_are_written_all_or_none(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    with pytest.raises(IsADirectoryError) as fault:
        write_files({first: b"1", second: b"2"})
    assert fault.value.filename == str(second)
    assert list(tmp_path.iterdir()) == [second]
