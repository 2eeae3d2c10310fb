"""`shardbook check` shows a learner how far a lab is, what is left and what comes next."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import LIMIT
from tests.notelab.scratch import Scratch, commit_all

WRITTEN = """
- **Counted before.** The count `uses` grows first, so a failing call still counts; see
  `pkg/scaler.py:L14-L15`, where the comment says so.
- **Two amounts.** What `combine` returns is a Euclidean length and never a plain sum of both:
  `pkg/scaler.py:L22-L25` computes it.
"""


@pytest.fixture
def learner_lab(scratch: Scratch) -> Path:
    """Start a lab in progress beside the finished one."""
    assert scratch.run("new", "mine", "--from", "01-scratch").returncode == 0
    return scratch.book / "experiments/mine"


def write(learner_lab: Path, choices: str, closing: str = "") -> None:
    note = learner_lab / "note.md"
    head, heading, rest = note.read_text("utf-8").partition("\n## Connect the dots\n")
    note.write_text(head + choices + heading + rest + closing, "utf-8")


def test_words_and_choices_stand_beside_their_limits(scratch: Scratch, learner_lab: Path) -> None:
    assert "0 of 2 choices, 0 of 120 words" in scratch.run("check", str(learner_lab)).stdout
    write(learner_lab, "".join(WRITTEN.partition("- **Two")[:1]))
    assert "1 of 2 choices, 19 of 120 words" in scratch.run("check", str(learner_lab)).stdout


def test_what_a_lab_in_progress_lacks_is_to_do(scratch: Scratch, learner_lab: Path) -> None:
    (learner_lab / "up-sha.txt").unlink()
    done = scratch.run("check")
    assert done.returncode == 0, done
    assert "to do, in labs in progress:\nexperiments/mine/note.md:1:1 N105" in done.stdout
    assert "N120" in done.stdout and done.stdout.endswith("0 findings, 4 to do\n")
    for path in ("experiments/mine", "experiments/mine/note.md"):
        named = scratch.run("check", path)
        assert named.returncode == 1 and "to do" not in named.stdout
    report = json.loads(scratch.run("check", "--output-format", "json").stdout)
    assert report["findings"] == []
    labs = {lab["folder"]: (lab["in_progress"], lab["to_do"]) for lab in report["labs"]}
    assert labs == {"experiments/01-scratch": (False, 0), "experiments/mine": (True, 4)}


def test_what_is_wrong_in_it_is_a_finding_all_the_same(scratch: Scratch, learner_lab: Path) -> None:
    write(learner_lab, WRITTEN.replace("L14-L15", "L15-L17"))
    done = scratch.run("check")
    assert done.returncode == 1, done
    [line] = [line for line in done.stdout.splitlines() if " N2" in line.partition("to do")[0]][:1]
    assert line.startswith("experiments/mine/note.md:") and " N208 " in line


def test_a_finished_lab_that_lacks_something_is_red(scratch: Scratch, learner_lab: Path) -> None:
    assert learner_lab.is_dir()
    scratch.replace("note.md", "## Connect the dots", "## Something else")
    done = scratch.run("check")
    assert done.returncode == 1 and "experiments/01-scratch/note.md:1:1 N109" in done.stdout


def test_after_the_last_finding_comes_the_next_step(scratch: Scratch, learner_lab: Path) -> None:
    write(learner_lab, WRITTEN, "\nIn lab 02 the same count is what we measure.\n")
    assert "next:" not in scratch.run("check", "experiments/mine").stdout
    assert scratch.run("lock", "experiments/mine").returncode == 0
    done = scratch.run("check", "experiments/mine")
    assert done.returncode == 0, done
    advice = "commit experiments/mine, then `shardbook compare experiments/mine`\n"
    assert done.stdout.endswith(f"next: take `in-progress` out of its lab.toml, {advice}")
    assert "next:" not in scratch.run("check", "experiments/mine/note.md").stdout
    file = learner_lab / "lab.toml"
    file.write_text(file.read_text("utf-8").replace("in-progress = true\n", ""))
    assert scratch.run("check", "experiments/mine").stdout.endswith(f"next: {advice}")
    commit_all(scratch.book, "my reading")
    assert "next:" not in scratch.run("check", "experiments/mine").stdout
    compared = learner_lab / "compared.md"  # what `compare --page` writes is no note
    compared.write_text("# Compared\n")
    assert "next:" not in scratch.run("check", "experiments/mine").stdout
    file.write_text(file.read_text("utf-8") + "\n")
    assert scratch.run("check", "experiments/mine").stdout.endswith(f"next: {advice}")
    assert "next:" not in scratch.run("check", "experiments/01-scratch").stdout


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_watch_checks_again_after_each_save_also_of_a_broken_lab_file(scratch: Scratch) -> None:
    environment = {
        **os.environ,
        "SHARDBOOK_CACHE": str(scratch.root / "cache"),
        "SHARDBOOK_MIRROR_UP": str(scratch.upstream),
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "notelab", "check", "--watch", "experiments/01-scratch"],
        cwd=scratch.book, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as watch:  # fmt: skip

        def wait_for(what: str) -> None:
            """Wait until it says so, and that it watches again: a save may be seen half done."""
            assert watch.stdout is not None
            output = ""
            for line in watch.stdout:
                output += line
                if what in output and line.startswith("watching"):
                    return
            pytest.fail(f"it ended: {output}")

        wait_for(" 0 findings")
        scratch.replace("note.md", "L14-L15", "L15-L17")
        wait_for(" N208 ")
        text = scratch.read("lab.toml")
        scratch.write("lab.toml", "[lab\n")
        wait_for("error: experiments/01-scratch/lab.toml: not valid TOML")
        scratch.write("lab.toml", text)
        wait_for(" N208 ")
        away = scratch.lab.rename(scratch.root / "another branch is checked out")
        wait_for("error: experiments/01-scratch: no such file or folder")
        away.rename(scratch.lab)
        wait_for(" N208 ")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(LIMIT) == 1
