"""Fixtures of the checker's tests."""

from pathlib import Path

import pytest

from tests.notelab.scratch import Scratch


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    """Return a small lab that has nothing to report."""
    return Scratch(tmp_path)
