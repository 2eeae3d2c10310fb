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
from tests.notelab.scratch import Scratch, git
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


def test_the_wheel_holds_checker_and_kernels_and_what_the_checker_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {info.filename: info.file_size for info in archive.infolist()}
    metadata = f"shardbook-{__version__}.dist-info"
    assert {name.partition("/")[0] for name in files} == {"notelab", "shardlab", metadata}
    kernels = {name for name in files if name.startswith("shardlab/")}
    sources = {
        path.relative_to(ROOT / "tools").as_posix()
        for path in (ROOT / "tools/shardlab").rglob("*.py")
    }
    assert kernels == sources | {"shardlab/parity/sentences.toml"}
    files = {name: size for name, size in files.items() if name not in kernels}
    pages = {name for name in files if name.endswith(".md")}
    grammars = {f"{name}{ending}.md" for name in ("lab-file", "notes") for ending in ("", ".es")}
    rules = {f"rules/{page.name}" for page in (ROOT / "docs/reference/rules").glob("N*.md")}
    assert pages == {f"notelab/reference/{page}" for page in rules | grammars}
    rest = {
        Path(name).name
        for name in files.keys() - pages
        if not name.startswith(metadata) and Path(name).suffix != ".py"
    }
    scripts = {name for name in rest if name.endswith(".js")}
    assert "mermaid.min.js" in scripts and "VERSION" in rest
    blank = {path.name for path in (ROOT / "tools/notelab/commands/blank").iterdir()}
    lab = {"lab.toml", "megatron-sha.txt", "pytorch-sha.txt"}
    assert rest - scripts == {"VERSION", *blank, *lab}
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


def test_an_adopter_has_checker_and_kernels_and_none_of_the_workbooks_rooms(adopted: Path) -> None:
    script = (
        "import importlib.util as u, notelab, shardlab; print(notelab.__file__, shardlab.__file__, "
        "*(name for name in ('sitelab', 'pages', 'costlab') if u.find_spec(name)))"
    )
    done = run(adopted / "python", "-c", script)
    packages = ("notelab", "shardlab")
    assert done.stdout.split() == [
        str(next(adopted.parent.glob(f"lib/*/*/{name}/__init__.py"))) for name in packages
    ]


def test_an_adopters_checker_imports_no_torch_and_kernels_no_checker(adopted: Path) -> None:
    script = (
        "import pkgutil, importlib, sys; package = importlib.import_module(sys.argv[1])\n"
        "for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        "print(*(name for name in sys.argv[2:] if name in sys.modules))"
    )
    others = {"notelab": ["torch", "numpy", "shardlab"], "shardlab": ["notelab", "git", "fsrs"]}
    for package, refused in others.items():
        done = run(adopted / "python", "-c", script, package, *refused)
        assert done.returncode == 0 and done.stdout == "\n", done.stdout + done.stderr


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


def test_an_adopter_proves_a_lab_and_finds_a_slipped_range(adopted: Path, scratch: Scratch) -> None:
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


def test_an_adopter_reads_the_reference_in_both_languages(adopted: Path) -> None:
    fields = run(adopted / "shardbook", "explain", "lab-file").stdout
    assert "`closing-heading`" in fields and "`min-choices`" in fields
    spanish = run(adopted / "shardbook", "explain", "N208", "--language", "es")
    assert spanish.returncode == 0 and "cita" in spanish.stdout


OWN_REPOSITORY = ROOT / "docs/reference/own-repository.md"
OWN_NOTE = """\
---
title: Reading upstream
commit:
  upstream: COMMIT
---

# Reading upstream

- **Counted before.** The count `uses` grows first, so a failing call still counts, and the
  comment above the line says why the author wanted it that way `pkg/scaler.py:L14-L15`.
- **Two amounts.** What `combine` returns is a Euclidean length of both amounts, and never
  their plain sum, so two equal amounts give less than twice one of them `pkg/scaler.py:L22-L25`.
- **A bound.** No result may be infinite: a result above every number is refused with an error that
  holds the result (`OverflowError`), after the count has grown `pkg/scaler.py:L17-L18`.
"""


def own_repository_script(scratch: Scratch, adopted: Path) -> list[str]:
    """Return the commands of the page, with the names that a reader replaces, and the hook file."""
    here = {
        "python3 -m venv .venv": f"[ -d .venv ] || cp -a '{adopted.parent}' .venv",
        "pip install 'git+ADDRESS@COMMIT'": "shardbook --version",
        ".venv/bin/pip install 'git+ADDRESS@COMMIT'": ".venv/bin/shardbook --version",
        "pip install --force-reinstall 'git+ADDRESS@COMMIT'": "shardbook --version",
        "pip install pre-commit": "true",
        "pre-commit install": f"'{Path(sys.executable).parent}/pre-commit' install",
        "shardbook lock lectures/reading": "cp ../note.md lectures/reading/reading.md\n"
        "shardbook lock lectures/reading",
    }
    names = {"URL": f"file://{scratch.upstream}", "TAG": "v1", "SOURCE": "upstream"}
    names["SYMBOL"] = "pkg/scaler.py:Scaler.apply"
    script, seen = [], set()
    text = OWN_REPOSITORY.read_text("utf-8")
    for kind, block in re.findall(r"^```(bash|yaml)\n(.*?)^```$", text, re.M | re.S):
        if kind == "yaml":
            script.append(f"cat > .pre-commit-config.yaml <<'END'\n{block}END")
            continue
        for line in block.splitlines():
            seen.add(line)
            command = here.get(line, line)
            script.append(
                re.sub(r"\b[A-Z]{3,}\b", lambda word: names.get(word[0], word[0]), command)
            )
    assert here.keys() <= seen, here.keys() - seen
    return script


def test_the_page_on_your_own_repository_does_what_it_says(adopted: Path, scratch: Scratch) -> None:
    if not (Path(sys.executable).parent / "pre-commit").exists():
        pytest.skip("pre-commit is not installed beside this Python")
    note = OWN_NOTE.replace("COMMIT", scratch.commit[:12])
    (scratch.root / "note.md").write_text(note, "utf-8")
    script = own_repository_script(scratch, adopted)
    environment = {
        "HOME": str(scratch.root),
        "https_proxy": "http://127.0.0.1:9",  # no host is reached, and none is waited for
        "SHARDBOOK_CACHE": str(scratch.root / "adopters"),
        "PRE_COMMIT_HOME": str(scratch.root / "pre-commit"),
        **{f"GIT_{who}_NAME": "Reader" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "reader@example.invalid" for who in ("AUTHOR", "COMMITTER")},
    }
    typed = "\n".join(["set -ex", f"cd '{scratch.root}'", *script])
    done = run("bash", "-c", typed, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 proved" in done.stdout and "pkg/scaler.py:L13-L19" in done.stdout
    notes = scratch.root / "notes"
    assert git(notes, "status", "--porcelain", "lectures/reading") == ""
    labs = {lab.name for lab in (notes / "lectures").iterdir()}
    assert labs == {"reading", "megatron", "lecture"}
    assert 'closing-heading.fr = ""' in (notes / "lectures/lecture/lab.toml").read_text("utf-8")
    (notes / "lectures/reading/reading.md").write_text(note.replace("L14-L15", "L15-L17"), "utf-8")
    refused = run("git", "-C", notes, "commit", "-qam", "slipped", **environment)
    assert refused.returncode and " N208 " in refused.stdout + refused.stderr


@pytest.mark.ci
def test_the_page_on_weights_ends_with_one_loss(adopted: Path, wheel: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: make hf-env")
    python = adopted / "python"
    replaced = {
        "python3 -m venv .venv": f"[ -d .venv ] || ln -s '{adopted.parent}' .venv",
        "pip install 'shardbook[kernels] @ git+ADDRESS@COMMIT'": f"'{sys.executable}' -m pip "
        f"--python '{python}' install --quiet --no-index --force-reinstall --no-deps '{wheel}' && "
        f"'{sys.executable}' -m pip --python '{python}' install --no-index '{wheel}[kernels]'",
        "pip install 'transformers>=5,<6'": "python -c 'import transformers'",
    }
    script = ["set -e", 'torchrun() { python -m torch.distributed.run "$@"; }']
    text = (ROOT / "docs/reference/weights.md").read_text("utf-8")
    for kind, block in re.findall(r"^```(bash|python)\n(.*?)^```$", text, re.M | re.S):
        if kind == "python":
            (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block, "utf-8")
        else:
            script += [replaced.pop(line, line) for line in block.splitlines()]
    assert not replaced
    names = {"PATH": f"{adopted}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = run("bash", "-c", "\n".join([f"cd '{tmp_path}'", *script]), **names)
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(loss) for loss in re.findall(r"^loss (\d\.\d+)$", done.stdout, re.M)]
    assert len(losses) == 3 and losses == pytest.approx(losses[:1] * 3, abs=3e-5), done.stdout
    assert losses[0] < 2  # it has learned
    assert len([*(tmp_path / "small-llama").glob("model-0000?-of-00002.safetensors")]) == 2


def test_an_adopter_starts_the_reading_lab_anywhere(adopted: Path, tmp_path: Path) -> None:
    new_lab = tmp_path / "mine"
    done = run(adopted / "shardbook", "new", new_lab, "--from", "35-reading-notes")
    assert done.returncode == 0, done.stderr
    finished = ROOT / "experiments/35-reading-notes"
    for name in ("megatron-sha.txt", "pytorch-sha.txt"):
        assert (new_lab / name).read_bytes() == (finished / name).read_bytes()
    assert "N105" in run(adopted / "shardbook", "check", new_lab).stdout
