"""Fixtures for the tests of the checker."""

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from notelab.mermaid import engine as mermaid_engine
from notelab.mermaid.engine import EngineThread
from notelab.sources.index import address
from tests.notelab.scratch import Scratch


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    """Return a small lab without findings."""
    return Scratch(tmp_path)


@pytest.fixture(scope="session", autouse=True)
def pip_queried_once() -> Iterator[None]:
    """Query pip once for each set of configuration paths: a query takes a quarter second."""
    ask_pip, variables = address._ask_pip, ("PIP_CONFIG_FILE", "HOME", "XDG_CONFIG_HOME")

    @cache
    def cached_ask(*_: str | None) -> Any:
        return ask_pip()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            address,
            "_ask_pip",
            lambda: cached_ask(sys.executable, *map(os.environ.get, variables)),
        )
        yield


@pytest.fixture
def pip_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove this machine's pip settings, proxies and logins from the environment."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


@pytest.fixture(scope="session")
def running_engine() -> tuple[int, EngineThread]:
    """Return an engine, and the process in which its thread runs."""
    return os.getpid(), EngineThread()


@pytest.fixture
def one_engine(running_engine: tuple[int, EngineThread], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse diagrams with an engine that is running: to start one takes half a second."""
    process, engine = running_engine
    monkeypatch.setattr(
        mermaid_engine, "EngineThread", lambda: engine if os.getpid() == process else EngineThread()
    )
