"""Fixtures of the checker's tests."""

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from notelab.sources.index import settings
from tests.notelab.scratch import Scratch


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    """Return a small lab that has nothing to report."""
    return Scratch(tmp_path)


@pytest.fixture(scope="session", autouse=True)
def pip_asked_once() -> Iterator[None]:
    """Ask pip what its files hold once for each place they are in: it takes it a quarter second."""
    asked, where = settings._ask_pip, ("PIP_CONFIG_FILE", "HOME", "XDG_CONFIG_HOME")

    @cache
    def told(*_: str | None) -> Any:
        return asked()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            settings, "_ask_pip", lambda: told(sys.executable, *map(os.environ.get, where))
        )
        yield


@pytest.fixture
def pip_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what this machine's pip is told, and any proxy and login."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
