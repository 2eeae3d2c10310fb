"""Fixtures of the checker's tests."""

import os
from pathlib import Path

import pytest

from tests.notelab.scratch import Scratch


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    """Return a small lab that has nothing to report."""
    return Scratch(tmp_path)


@pytest.fixture
def pip_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what this machine's pip is told, and any proxy and login."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
