"""A reader's machine: a clone of this working tree, with its own home and cache, and no host."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from notelab.book.evidence import State
from notelab.book.workbook import open_lab
from notelab.sources.store import default_root
from pages.faults.planting import OUTSIDE_THE_WHEELS
from tests.docs.page import ROOT
from tests.notelab.real import real_bench
from tests.notelab.scratch import git, make_repository
from tests.running import run_program

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with one commit, which holds the files of this working tree."""
    folder = tmp_path_factory.mktemp("docs") / "repository"
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = run_program(listing, cwd=ROOT, check=True).stdout.split("\0")
    for name in files:
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    make_repository(folder, {})
    return folder


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository that replaces both cited repositories, with the tags that labs pin."""
    folder = tmp_path_factory.mktemp("upstream")
    make_repository(folder, {"setup.py": "import setuptools\n"})
    git(folder, "tag", "core_v0.16.1")
    git(folder, "tag", "v2.13.0")
    return folder


@pytest.fixture(scope="session")
def ranks() -> Iterator[str]:
    """Return the address of the process that forks torchrun's ranks."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are too deep for a socket
        address = f"{folder}/ranks"
        serving = subprocess.Popen(
            [sys.executable, HERE / "stand_ins/ranks.py", address],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'tools'}:{ROOT}", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
        )
        assert serving.stdout and serving.stdout.readline() == b"ready\n"
        yield address
        serving.kill()
        serving.wait()


@pytest.fixture(scope="session")
def cited_text() -> Path:
    """Return the user's store with the cited files, loaded as `make check` loads them."""
    gathered = open_lab(ROOT / "experiments/35-reading-notes", real_bench()).evidence.list_files()
    for file in gathered:
        if file.state is not State.PROVED and not file.path.startswith(OUTSIDE_THE_WHEELS):
            pytest.skip(f"the cited sources are not at hand: {file.path}: {file.reasons}")
    return Path(os.environ.get("SHARDBOOK_CACHE") or default_root()) / "blobs"


@pytest.fixture
def shell(
    request: pytest.FixtureRequest, repository: Path, upstream: Path, ranks: str, tmp_path: Path
) -> dict[str, str]:
    """Return the environment of a reader's shell, with nothing set up and no host in reach."""
    home, cache = tmp_path / "home", tmp_path / "cache"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\nname = Reader\nemail = reader@example.invalid\n")
    pages = request.node.callspec.params["pages"]
    if any("shardbook show" in page.read_text("utf-8") for page in pages):
        shutil.copytree(request.getfixturevalue("cited_text"), cache / "blobs")
    ours = Path(sys.executable).parent
    path = [part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != ours]
    return {
        "HOME": str(home),
        "PATH": os.pathsep.join(path),
        "LANG": "C.UTF-8",
        "SHARDBOOK_CACHE": str(cache),
        "SHARDBOOK_MIRROR_MEGATRON": str(upstream),
        "SHARDBOOK_MIRROR_PYTORCH": str(upstream),
        "PRE_COMMIT_HOME": str(tmp_path / "pre-commit"),
        "PIP_NO_INDEX": "1",
        "MAKEFLAGS": "n",
        "OMP_NUM_THREADS": "1",
        "REPOSITORY": str(repository),
        "UPSTREAM": str(upstream),
        "PYTHON": sys.executable,
        "DOCS": str(HERE),
        "RANKS": ranks,
    }
