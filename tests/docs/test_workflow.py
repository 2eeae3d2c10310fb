"""The workflow for forks checks without secrets, and marks the lines of a pull request."""

import re
import shlex
from pathlib import Path

import yaml

from tests.docs.page import ROOT
from tests.notelab.scratch import Scratch

FILE = ROOT / ".github/workflows/shardbook-check.yml"
RUNS = [
    step["run"]
    for step in yaml.safe_load(FILE.read_text("utf-8"))["jobs"]["check"]["steps"]
    if "run" in step
]


def test_it_runs_on_pull_requests_with_no_right_but_to_read() -> None:
    workflow = yaml.safe_load(FILE.read_text("utf-8"))
    assert workflow[True] == ["pull_request"]  # YAML 1.1 reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets" not in FILE.read_text("utf-8")


def test_what_it_runs_names_the_file_and_the_line_of_a_finding(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    program, *words = shlex.split(RUNS[-1])
    assert program == "shardbook"
    assert (scratch.run(*words).returncode, scratch.run(*words).stdout) == (0, "")
    scratch.replace("note.md", "L14-L15", "L15-L17")
    done = scratch.run(*words)
    assert done.returncode == 1
    places = re.findall(r"^::error file=([^,]+),line=(\d+),", done.stdout, re.M)
    assert places
    for file, line in places:
        assert int(line) <= len((scratch.book / file).read_text("utf-8").splitlines())
    cited = ("experiments/01-scratch/note.md", "10")
    assert cited in places
    assert "L15-L17" in scratch.read("note.md").splitlines()[int(cited[1]) - 1]
