"""What an adopter gets: a wheel with checker and kernels, and none of the workbook's rooms."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from notelab import __version__
from pages.blocks import ROOT
from tests.limits import LIMIT
from tests.notelab.scratch import Scratch
from tests.running import run_program

MIB = 1 << 20
DIAGRAM = """
```mermaid
flowchart LR
  a[left] --> b[right]
```
"""


def run(*command: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as a user without a checkout."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return run_program([str(word) for word in command], env={**inherited, **environment})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run_program(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def adopted(wheel: Path) -> Path:
    """A fresh environment's `bin`, with the wheel and what it depends on, lent from this one."""
    venv = wheel.parent / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=LIMIT)
    python = venv / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    done = run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel)
    assert done.returncode == 0, done.stdout + done.stderr
    [packages] = venv.glob("lib/python*/site-packages")
    # A .pth within a folder that a .pth names isn't read: the checkout's own rooms stay unseen.
    packages.joinpath("lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n", "utf-8")
    return python.parent


def test_the_wheel_holds_checker_and_kernels_and_what_the_checker_needs_beside_them(
    wheel: Path,
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {info.filename: info.file_size for info in archive.infolist()}
    metadata = f"shardbook-{__version__}.dist-info"
    assert {name.partition("/")[0] for name in files} == {"notelab", "shardlab", metadata}
    pages = {name.removeprefix("notelab/rules/pages/") for name in files if name.endswith(".md")}
    assert pages == {page.name for page in (ROOT / "docs/reference/rules").glob("N*.md")}
    rest = {Path(n).name for n in files if not n.startswith(metadata) and Path(n).suffix != ".py"}
    scripts = {name for name in rest - pages if name.endswith(".js")}
    assert "mermaid.min.js" in scripts and "VERSION" in rest
    blank = {path.name for path in (ROOT / "tools/notelab/commands/blank").iterdir()}
    lab = {"lab.toml", "megatron-sha.txt", "pytorch-sha.txt"}
    assert rest - pages - scripts == {"VERSION", *blank, *lab}
    ours = [size for name, size in files.items() if Path(name).name != "mermaid.min.js"]
    assert sum(ours) < 2 * MIB
    assert wheel.stat().st_size < 2 * MIB


def test_the_wheels_metadata_carries_the_licences_of_what_is_vendored_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = f"shardbook-{__version__}.dist-info"
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode("utf-8"))
        texts = {
            Path(name).name: archive.read(f"{info}/licenses/{name}").decode("utf-8")
            for name in metadata.get_all("License-File", [])
        }
    assert texts.keys() == {"LICENSE", "mermaid.LICENSE", "mermaid.NOTICES"}
    head, _, _ = texts["mermaid.NOTICES"].partition("-" * 80)
    bundled = re.findall(r"^(\S+)@\d\S* \(", head, re.M)
    assert {"d3", "dompurify", "langium", "chevrotain", "lodash-es"} <= set(bundled)
    assert texts["mermaid.NOTICES"].count("Copyright") >= 20


def test_the_notices_are_those_of_the_mermaid_that_is_vendored() -> None:
    [notices] = (ROOT / "tools" / "notelab").rglob("mermaid.NOTICES")
    number = notices.with_name("VERSION").read_text("ascii").split()[0]
    assert notices.read_text("utf-8").startswith(f"mermaid.min.js (mermaid {number}) holds ")


def test_an_adopter_has_checker_and_kernels_and_none_of_the_workbooks_rooms(
    adopted: Path,
) -> None:
    script = (
        "import importlib.util as u, notelab; print(notelab.__file__, "
        "*(name for name in ('sitelab', 'pages', 'costlab') if u.find_spec(name)))"
    )
    done = run(adopted / "python", "-c", script)
    assert done.stdout.split() == [str(next(adopted.parent.glob("lib/*/*/notelab/__init__.py")))]


def test_an_adopter_proves_a_sharding(adopted: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/parity.md").read_text("utf-8")
    (tmp_path / "my_model.py").write_text(page.split("```python\n")[1].split("```")[0], "utf-8")
    command = [adopted / "python", "-m", "shardlab.parity", tmp_path / "my_model.py:build"]
    done = run(*command, "--case", '{"tensor": 2}', "--steps", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 compositions equal one process in fp64" in done.stdout


def test_without_torch_the_command_says_what_to_install(adopted: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(name='torch')", "utf-8")
    done = run(adopted / "python", "-m", "shardlab.parity", "a.py:b", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr == (
        "shardlab.parity: error: this Python has no torch: pip install 'shardbook[kernels]'\n"
    )


def test_an_adopter_proves_a_lab_and_is_told_of_a_range_that_slipped(
    adopted: Path, scratch: Scratch
) -> None:
    for name, heading in (("note.md", "## Connect"), ("note.es.md", "## Une")):
        scratch.replace(name, heading, f"{DIAGRAM}\n{heading}")
    environment = {
        "SHARDBOOK_CACHE": str(scratch.root / "adopters"),
        "SHARDBOOK_MIRROR_UP": str(scratch.upstream),
    }
    sound = run(adopted / "shardbook", "check", scratch.lab, **environment)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    assert "4 proved" in sound.stdout and "2 diagrams, 0 findings" in sound.stdout
    scratch.replace("note.md", "L14-L15", "L15-L17")
    slipped = run(adopted / "shardbook", "check", scratch.lab, **environment)
    assert slipped.returncode == 1 and " N208 " in slipped.stdout, slipped.stdout + slipped.stderr


def test_an_adopter_reads_a_rules_page_in_both_languages(adopted: Path) -> None:
    assert "N208" in run(adopted / "shardbook", "explain", "N208").stdout
    spanish = run(adopted / "shardbook", "explain", "N208", "--language", "es")
    assert spanish.returncode == 0 and "cita" in spanish.stdout


def test_an_adopter_starts_the_workbooks_reading_lab_anywhere(
    adopted: Path, tmp_path: Path
) -> None:
    new_lab = tmp_path / "mine"
    done = run(adopted / "shardbook", "new", new_lab, "--from", "35-reading-notes")
    assert done.returncode == 0, done.stderr
    finished = ROOT / "experiments/35-reading-notes"
    for name in ("megatron-sha.txt", "pytorch-sha.txt"):
        assert (new_lab / name).read_bytes() == (finished / name).read_bytes()
    assert "N105" in run(adopted / "shardbook", "check", new_lab).stdout
