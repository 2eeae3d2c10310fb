"""The hook, with real `pre-commit` and real `git commit`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pages.blocks import ROOT
from tests.notelab.scratch import Scratch, commit_all, git
from tests.running import run_program

BIN = Path(sys.executable).parent


def environment(scratch: Scratch) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **inherited,
        "SHARDBOOK_CACHE": str(scratch.root / "cache"),
        "SHARDBOOK_MIRROR_UP": str(scratch.upstream),
        "PRE_COMMIT_HOME": str(scratch.root / "pre-commit"),
        **{f"GIT_{who}_NAME": "T" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "t@example.invalid" for who in ("AUTHOR", "COMMITTER")},
        "GIT_CONFIG_GLOBAL": os.devnull,
    }


def run(scratch: Scratch, *command: str) -> "subprocess.CompletedProcess[str]":
    return run_program(command, cwd=scratch.book, env=environment(scratch))


@pytest.fixture
def hooked(scratch: Scratch) -> Scratch:
    """A workbook with this repository's own hook, as `make hooks` installs it."""
    pre_commit = BIN / "pre-commit"
    if not pre_commit.exists():
        pytest.skip("pre-commit is not installed beside this Python")
    text = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    text = text.replace(".venv/bin/", f"{BIN}/")
    start, end = text.index("      - id: ruff\n"), len(text)
    scratch.book.joinpath(".pre-commit-config.yaml").write_text(text[:start] + text[end:])
    commit_all(scratch.book, "sound")
    assert run(scratch, str(pre_commit), "install").returncode == 0
    return scratch


def test_a_commit_of_a_broken_note_is_refused_and_of_a_sound_one_passes(hooked: Scratch) -> None:
    head = git(hooked.book, "rev-parse", "HEAD")
    hooked.replace("note.md", "L14-L15", "L15-L17")
    refused = run(hooked, "git", "commit", "-qam", "broken")
    assert refused.returncode != 0
    assert "N208" in refused.stdout + refused.stderr
    assert git(hooked.book, "rev-parse", "HEAD") == head
    hooked.replace("note.md", "L15-L17", "L14-L15")
    hooked.replace("note.md", "where the comment says so", "where its comment says so")
    done = run(hooked, "git", "commit", "-qam", "sound")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "shardbook check" in done.stdout + done.stderr


def test_a_pin_of_another_name_and_a_note_that_is_gone_are_seen_too(hooked: Scratch) -> None:
    hooked.replace("lab.toml", "up-sha.txt", "PIN")
    git(hooked.book, "mv", "experiments/01-scratch/up-sha.txt", "experiments/01-scratch/PIN")
    done = run(hooked, "git", "commit", "-qam", "renamed")
    assert done.returncode == 0, done.stdout + done.stderr
    hooked.write("PIN", "0" * 39 + "\n")
    refused = run(hooked, "git", "commit", "-qam", "broken")
    assert refused.returncode != 0
    assert "N121" in refused.stdout + refused.stderr
    hooked.write("PIN", f"{hooked.commit}\n")
    git(hooked.book, "rm", "-q", "experiments/01-scratch/note.es.md")
    refused = run(hooked, "git", "commit", "-qm", "gone")
    assert "N501" in refused.stdout + refused.stderr


@pytest.mark.ci
@pytest.mark.network
def test_any_repository_can_use_the_hook_from_a_clone_of_this_one(scratch: Scratch) -> None:
    pre_commit = BIN / "pre-commit"
    if not pre_commit.exists():
        pytest.skip("pre-commit is not installed beside this Python")
    hook = scratch.root / "hook"
    ignored = shutil.ignore_patterns(".git", ".venv", "site", "node_modules", ".*_cache")
    shutil.copytree(ROOT, hook, ignore=ignored)
    git(hook, "init", "-q")
    commit_all(hook, "x")
    commit = git(hook, "rev-parse", "HEAD")
    # Not `try-repo`, which makes the hook's environment again each time.
    config = f"repos: [{{repo: {hook}, rev: {commit}, hooks: [{{id: shardbook-check}}]}}]"
    scratch.book.joinpath(".pre-commit-config.yaml").write_text(config)
    commit_all(scratch.book, "sound")
    tried = (str(pre_commit), "run", "--all-files", "--verbose")
    sound = run(scratch, *tried)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    scratch.replace("note.md", "L14-L15", "L15-L17")
    broken = run(scratch, *tried)
    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert "N208" in broken.stdout
