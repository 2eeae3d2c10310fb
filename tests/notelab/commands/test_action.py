"""`action.yml` as a runner of GitHub executes it: each `run:` step, in bash, on a faulty note."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pages.blocks import ROOT
from tests.notelab.scratch import make_repository
from tests.running import run_program

# What a composite action may hold, by GitHub's published schema.
ACTION_KEYS = {"name", "author", "description", "inputs", "outputs", "runs", "branding"}
INPUT_KEYS = {"description", "required", "default", "deprecationMessage"}
STEP_KEYS = {"name", "id", "if", "env", "continue-on-error"}
RUN_KEYS = {"run", "shell", "working-directory"}
LAB = '[lab]\ntitle = "Notes"\npages = ["*.md"]\n\n[sources.own]\npath = "."\npin = "HEAD"\n'
RUNNER_SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
ANNOTATION = re.compile(r"::(error|warning|notice) file=([^,]+),line=(\d+),.*title=(\w+) [^:]*::.+")


@pytest.fixture
def action() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    note = "`add_one` is `work.py:L1-L2`.\n\nIt is `work.py:L9`.\n"
    code = "def add_one(number):\n    return number + 1\n"
    make_repository(folder, {"work.py": code, "lab.toml": LAB, "note.md": note})
    return folder


def run_steps(
    action: dict[str, Any], workspace: Path, tools: Path, **inputs: str
) -> "list[tuple[str, int, str]]":
    """Run each `run:` step as a runner does; return its script, exit code and output.

    As the environment has the checker, pip's install goes to a stand-in that notes its arguments.
    """
    values = {name: given.get("default", "") for name, given in action["inputs"].items()} | inputs
    programs = tools / "bin"
    programs.mkdir(parents=True)
    python = programs / "python"
    python.write_text('#!/bin/sh\necho "$@"\ntest -f "$4/pyproject.toml"\n')
    checker = programs / "shardbook"
    checker.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m notelab "$@"\n')
    for program in (python, checker):
        program.chmod(0o755)
    files = {name: tools / name for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH")}
    files["GITHUB_STEP_SUMMARY"] = tools / "summary.md"
    for path in files.values():
        path.touch()
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(filter(None, sys.path)),
        "HOME": str(tools),
        "SHARDBOOK_CACHE": str(tools / "cache"),
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_WORKSPACE": str(workspace),
        **{name: str(path) for name, path in files.items()},
    }
    results = []
    for number, step in enumerate(step for step in action["runs"]["steps"] if "run" in step):
        script = tools / f"step-{number}.sh"
        script.write_text(step["run"])
        assert step["shell"] == "bash"
        own = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], text)
            for name, text in step.get("env", {}).items()
        }
        done = run_program([*RUNNER_SHELL, script], cwd=workspace, env=environment | own)
        results.append((step["run"], done.returncode, done.stdout + done.stderr))
        if done.returncode:
            break
    return results


def test_a_faulty_note_fails_the_step_with_one_annotation_a_finding(
    action: dict[str, Any], workspace: Path, tmp_path: Path
) -> None:
    (workspace / "note.md").write_text("`add_one` is `work.py:L1-L2`.\n\nIt is `work.py:L9`.\n")
    install, check = run_steps(action, workspace, tmp_path / "tools")
    assert install[1:] == (0, f"-m pip install {ROOT}\n")
    assert check[1] == 1
    lines = [line for line in check[2].split("\n") if line.startswith("::")]
    found = [ANNOTATION.fullmatch(line) for line in lines]
    assert all(found), lines
    places = {(match[1], match[2], match[3], match[4]) for match in found if match}
    assert ("error", "note.md", "3", "N205") in places


def test_a_sound_or_waived_note_passes(
    action: dict[str, Any], workspace: Path, tmp_path: Path
) -> None:
    waived = run_steps(action, workspace, tmp_path / "waived", options="--ignore N2 --strict")
    assert [code for _, code, _ in waived] == [0, 0], waived
    (workspace / "good.md").write_text("`add_one` is `work.py:L1-L2`.\n")
    paths = run_steps(action, workspace, tmp_path / "paths", paths="note.md")
    assert [code for _, code, _ in paths] == [0, 1]


def test_an_input_is_never_run(action: dict[str, Any], workspace: Path, tmp_path: Path) -> None:
    typed = f"$(touch {workspace}/run) `touch {workspace}/run` ; touch {workspace}/run"
    for name in ("paths", "options"):
        results = run_steps(action, workspace, tmp_path / name, **{name: typed})
        assert results[-1][1] == 2, results
    assert not (workspace / "run").exists()


def test_the_action_has_only_keys_that_a_composite_action_may_have(action: dict[str, Any]) -> None:
    assert set(action) <= ACTION_KEYS and {"name", "description", "runs"} <= set(action)
    assert set(action["runs"]) == {"using", "steps"} and action["runs"]["using"] == "composite"
    for name, given in action["inputs"].items():
        assert re.fullmatch(r"[A-Za-z_][\w-]*", name) and set(given) <= INPUT_KEYS
        assert isinstance(given["default"], str)
    for step in action["runs"]["steps"]:
        wanted = RUN_KEYS if "run" in step else {"uses", "with"}
        assert set(step) <= STEP_KEYS | wanted, step
        assert "shell" in step if "run" in step else "@" in step["uses"]
