"""A repository to be cited, with what a hostile or awkward one may hold."""

from pathlib import Path

import pytest

from notelab.sources.answers import Source, Unreachable
from tests.notelab.scratch import commit_of, copy_filled, git, make_repository

ONE = "pkg/deep/one.py"
TWO = "pkg/deep/two.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "upstream"


@pytest.fixture
def upstream(folder: Path) -> Source:
    return make_upstream(folder)


def make_upstream(folder: Path, *, filters: bool = True) -> Source:
    """Make a repository of two commits and return it as a source pinned to the first."""
    copy_filled(_repository, folder)
    if filters:
        with (folder / ".git/config").open("a") as config:
            config.write("[uploadpack]\n\tallowFilter = true\n\tallowAnySHA1InWant = true\n")
    return Source(name="up", url=folder.as_uri(), commit=commit_of(_repository, "v1^{}"))


def _repository(folder: Path) -> None:
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg/link.py").symlink_to("/etc/hostname")
    (folder / "pkg/linked").symlink_to("deep")
    files = {ONE: "def one():\n    return 1\n", TWO: "def two():\n    return 2\n"}
    make_repository(folder, files | {"big.py": "# long\n" * 1_300_000})
    git(folder, "tag", "-a", "v1", "-m", "one")
    (folder / ONE).write_text("def one():\n    return 'changed'\n")
    git(folder, "commit", "-q", "-a", "-m", "second")
    git(folder, "branch", "side")


def reasons(answer: object) -> list[str]:
    """Return why a file could not be had."""
    assert isinstance(answer, Unreachable), answer
    return answer.reasons
