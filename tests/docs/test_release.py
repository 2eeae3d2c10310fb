"""The version: every place that states it, and the workflow that a fork installs it with."""

import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from notelab import __version__
from tests.docs.page import ROOT
from tests.notelab.scratch import Scratch
from tests.running import run_program

WORKFLOW = ROOT / ".github/workflows/shardbook-check.yml"
COMMIT = re.compile(r"\b[0-9a-f]{40}\b")


@dataclass(frozen=True)
class Section:
    """A version's heading in the changelog, and the commit in the line below it."""

    heading: str
    commit: str | None


def read_sections() -> list[Section]:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    _, *parts = re.split(r"^## ", text, flags=re.M)
    result = []
    for part in parts:
        named = re.match(r"(\S+)[^\n]*\n\n(?:Commit `([0-9a-f]{40})`\.\n)?", part)
        assert named, part[:80]
        result.append(Section(named[1], named[2]))
    return result


def read_committed(commit: str, path: str) -> str | None:
    """Return a file of a commit, or None if this clone's history doesn't reach the commit."""
    shown = run_program(["git", "show", f"{commit}:{path}"], cwd=ROOT)
    return shown.stdout if shown.returncode == 0 else None


def test_the_package_and_its_module_have_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == __version__


def test_the_newest_heading_is_unreleased_exactly_while_the_version_is_under_development() -> None:
    newest, *earlier = read_sections()
    assert newest.heading == ("Unreleased" if Version(__version__).is_devrelease else __version__)
    assert newest.commit is None  # a commit cannot name itself
    numbers = [Version(section.heading) for section in earlier]
    assert [Version(__version__), *numbers] == sorted({Version(__version__), *numbers})[::-1]
    assert str(numbers[-1]) == "0.1.0"


def test_every_earlier_version_names_its_commit_which_has_that_version() -> None:
    for section in read_sections()[1:]:
        assert section.commit, section
        module = read_committed(section.commit, "tools/notelab/__init__.py")
        if module is None:
            shallow = run_program(["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT)
            assert shallow.stdout != "false\n", f"{section} is no commit of this repository"
            continue
        assert f'__version__ = "{section.heading}"\n' in module, section


@pytest.mark.parametrize("file", ["README.md", ".github/workflows/shardbook-check.yml"])
def test_what_a_reader_installs_is_the_newest_released_version(file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    newest = read_sections()[1]
    assert set(COMMIT.findall(text)) == {newest.commit}
    assert set(re.findall(r"rev: (\S+)|SHARDBOOK@([^\s\"]+)", text)) <= {
        (newest.commit, ""), ("", newest.commit)
    }  # fmt: skip
    assert set(re.findall(r"version (\d+\.\d+\.\d+\S*)", text)) <= {newest.heading}
    assert not re.search(r"\bv\d+\.\d+\.\d+\b", text), "no version has a tag"


def test_the_workflow_runs_on_pull_requests_with_no_right_but_to_read() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text("utf-8"))
    assert workflow[True] == ["pull_request"]  # YAML 1.1 reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets" not in WORKFLOW.read_text("utf-8")


def test_what_the_workflow_runs_names_the_file_and_the_line_of_a_finding(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    steps = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"]["check"]["steps"]
    program, *words = shlex.split([step["run"] for step in steps if "run" in step][-1])
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
