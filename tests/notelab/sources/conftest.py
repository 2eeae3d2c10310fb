"""A repository to be cited, as fixtures."""

from pathlib import Path

import pytest

from notelab.sources.answers import Source
from tests.notelab.sources.upstream import make_upstream


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "upstream"


@pytest.fixture
def upstream(folder: Path) -> Source:
    return make_upstream(folder)
