"""Tests of `make`'s set-up: locks satisfy pyproject, and a fault is reported in one line."""

from __future__ import annotations

import re
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import environment
from environment import Environment, SetUpError

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PINNED = re.compile(
    r"^([\w.-]+)==([\w.]+)( ; [^\\]+)? \\\n(    --hash=sha256:\w{64}( \\)?\n?)+", re.M
)


def read_pins(*layers: str) -> dict[str, str]:
    texts = [(environment.LOCKS / f"{layer}.txt").read_text("utf-8") for layer in layers]
    return {match[1]: match[2] for text in texts for match in PINNED.finditer(text)}


def read_requirements(*extras: str) -> list[Requirement]:
    project = PROJECT["project"]
    written = [*project["dependencies"], *PROJECT["build-system"]["requires"]]
    written += [line for extra in extras for line in project["optional-dependencies"][extra]]
    requirements = [Requirement(line) for line in written]
    return [each for each in requirements if each.name not in ("shardbook", "torch")]


@pytest.mark.parametrize(
    ("layers", "extras"),
    [
        (["check"], []),
        (["check", "bench"], ["kernels", "bench"]),
        (["check", "bench", "test"], ["kernels", "bench", "docs", "dev"]),
        (["check", "bench", "hf"], ["hf"]),
    ],
)
def test_the_locks_hold_what_pyproject_asks_for(layers: list[str], extras: list[str]) -> None:
    pinned = read_pins(*layers)
    for requirement in read_requirements(*extras):
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"{name} is in no lock: make lock"
        assert pinned[name] in requirement.specifier, f"{name}=={pinned[name]}: make lock"


def test_a_lock_is_pins_and_hashes_names_no_index_and_leaves_torch_out() -> None:
    for layer in environment.LAYERS:
        text = (environment.LOCKS / f"{layer}.txt").read_text("utf-8")
        rest = PINNED.sub("", text)
        assert not [line for line in rest.splitlines() if line and not line.startswith("#")]
        assert "://" not in text
    assert not {"torch", "triton", "pip"} & {*read_pins(*environment.LAYERS)}


def test_the_oldest_python_is_written_alike_wherever_it_stands() -> None:
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"sys.version_info < ({oldest.replace('.', ', ')})" in makefile
    assert f"needs Python {oldest} or newer" in makefile
    for script in (".ci/lock/refresh", ".ci/pythons", "tools/bench"):
        text = (ROOT / script).read_text("utf-8")
        assert oldest in text or f"({oldest.replace('.', ', ')})" in text


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment with this Python's pip, an index that is a folder, and writable locks."""
    folder = tmp_path / "an environment"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(environment, "LOCKS", tmp_path)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for name in ("PIP_DRY_RUN", "PIP_IGNORE_INSTALLED"):  # nothing reaches this Python itself
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()
    return Environment(folder, "torch==2.13.0")


def write_wheel(folder: Path, name: str, tag: str) -> None:
    distribution, version = name.split("-")
    with zipfile.ZipFile(folder / f"{name}-{tag}.whl", "w") as archive:
        info = f"{distribution}-{version}.dist-info"
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")


def write_lock(tmp_path: Path, layer: str, name: str) -> None:
    (tmp_path / f"{layer}.txt").write_text(f"{name} \\\n    --hash=sha256:{'0' * 64}\n")


def error_line(caught: pytest.ExceptionInfo[SetUpError]) -> str:
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_other_bytes_than_the_locks_are_refused(here: Environment, tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "thing-1.0", "py3-none-any")
    write_lock(tmp_path, "check", "thing==1.0")
    with pytest.raises(SetUpError) as caught:
        here.fill("check")
    assert error_line(caught).startswith("the checker can't be installed: ")
    assert "your index's thing==1.0 (sha256 " in error_line(caught)
    assert "hasn't the bytes that the lock names" in error_line(caught)
    assert not (here.folder / ".check").exists()


def test_a_package_that_the_index_lacks_is_named(here: Environment, tmp_path: Path) -> None:
    write_lock(tmp_path, "check", "thing==1.0")
    with pytest.raises(SetUpError, match=r"has no thing==1\.0 that this Python can use") as caught:
        here.fill("check")
    assert "pip.log" in error_line(caught)
    assert "thing" in (here.folder / "pip.log").read_text("utf-8")


def test_an_index_that_does_not_answer_is_said_at_once_and_at_the_end(
    here: Environment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "2")
    write_lock(tmp_path, "check", "thing==1.0")
    with pytest.raises(SetUpError, match="the package index doesn't answer") as caught:
        here.fill("check")
    assert "pip config list" in error_line(caught)
    assert capsys.readouterr().out.count("pip asks again") == 1


def test_a_torch_without_a_wheel_for_this_python_is_said_before_any_download(
    here: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_wheel(tmp_path / "wheels", "torch-2.13.0", "cp27-cp27m-win32")
    write_lock(tmp_path, "bench", "megatron-core==0.16.1")
    with pytest.raises(SetUpError) as caught:
        here.fill("bench")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"torch==2.13.0 has no wheel for Python {version} on " in error_line(caught)
    assert capsys.readouterr().out == ""


def test_a_neighbour_that_must_be_compiled_is_said_before_any_download(
    here: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_wheel(tmp_path / "wheels", "torch-2.13.0", "py3-none-any")
    write_lock(tmp_path, "bench", "megatron-core==0.16.1")
    with pytest.raises(SetUpError, match="what the bench needs can't be installed"):
        here.fill("bench")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("note: megatron-core==0.16.1 has no wheel for Python ")
    assert second.startswith("installing what the bench needs")


def test_a_layer_is_filled_once_and_again_when_its_lock_or_torch_is_another(
    here: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[tuple[str, ...]] = []
    monkeypatch.setattr(
        Environment, "_install", lambda _, what, *words: installed.append((what, *words))
    )
    monkeypatch.setattr(Environment, "_has_wheel", lambda *_: True)
    write_lock(tmp_path, "bench", "megatron-core==0.16.1")
    here.fill("bench")
    here.fill("bench")
    assert [words[-1] for words in installed] == [str(tmp_path / "bench.txt"), "torch==2.13.0"]
    Environment(here.folder, "torch==2.15.0").fill("bench")
    assert installed[-1] == ("torch", "torch==2.15.0")
    write_lock(tmp_path, "bench", "megatron-core==0.16.2")
    Environment(here.folder, "torch==2.15.0").fill("bench")
    assert len(installed) == 6


def test_torchs_options_reach_pip(
    here: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed: list[tuple[str, ...]] = []
    monkeypatch.setattr(Environment, "_install", lambda _, *words: installed.append(words))
    write_lock(tmp_path, "bench", "megatron-core==0.16.1")
    here.torch = "torch==2.13.0 --find-links '/a folder'"
    monkeypatch.setattr(Environment, "_has_wheel", lambda *_: True)
    here.fill("bench")
    assert installed[-1] == ("torch", "torch==2.13.0", "--find-links", "/a folder")


def test_a_python_newer_than_those_tried_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.newer_than_tried() == ""
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    assert "Python 3.99 is newer than the newest that Shardbook is tried with, 3.1" in (
        environment.newer_than_tried()
    )
