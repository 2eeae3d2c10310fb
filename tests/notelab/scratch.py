"""A small lab in a temporary repository, which cites a real git repository beside it."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from notelab.book.relock import RelockResult, relock
from notelab.book.workbook import CheckSession, open_lab
from notelab.cache import DiskCache
from notelab.check import check_labs
from notelab.lab import lock as lock_file
from notelab.report.outcome import Report
from notelab.sources.library import Library
from notelab.sources.store import Store
from tests.notelab.in_process import run_shardbook
from tests.running import run_program


def check_lab(folder: Path, bench: CheckSession, only: set[Path] | None = None) -> Report:
    """Check a lab, or only some of its pages."""
    return check_labs({folder: only}, bench)


UPSTREAM = '''\
"""A module that the scratch lab cites."""

import math


class Scaler:
    """Scale what it is given."""

    def __init__(self, factor):
        self.factor = factor
        self.uses = 0

    def apply(self, amount):
        # Count before scaling, so that a failure is counted too.
        self.uses += 1
        scaled = amount * self.factor
        if scaled > math.inf:
            raise OverflowError(scaled)
        return scaled


def combine(left, right):
    """Combine two amounts."""
    total = math.hypot(left, right)
    return total
'''

LAB = """\
[lab]
title = "Scratch"
languages = ["en", "es"]

[sources.up]
url = "https://example.invalid/up.git"
pin = "up-sha.txt"

[notes."note.md"]
sources = ["up"]
max-words = 120
min-choices = 2
choice-words = [10, 40]
closing-mentions = { en = ["lab 02"], es = ["laboratorio 02"] }
"""

NOTE = """\
---
title: A scratch note
commit:
  up: {commit}
---

# A scratch note

- **Counted before.** The count `uses` grows first, so a failing call still counts; see
  `pkg/scaler.py:L14-L15`, where the comment says so.
- **Two amounts.** What `combine` returns is a Euclidean length and never a plain sum of both:
  `pkg/scaler.py:L22-L25` computes it.

## Connect the dots

In lab 02 the same count is what we measure.
"""

NOTA = """\
---
title: Una nota de prueba
commit:
  up: {commit}
---

# Una nota de prueba

- **Se cuenta antes.** La cuenta `uses` crece primero, así que una llamada fallida también cuenta;
  véase `pkg/scaler.py:L14-L15`, donde lo dice el comentario.
- **Dos cantidades.** Lo que devuelve `combine` es una longitud euclídea y nunca una simple suma:
  `pkg/scaler.py:L22-L25` la calcula.

## Une los puntos

En el laboratorio 02 medimos esa misma cuenta.
"""


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, as nobody in particular."""
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.invalid", "-c", "gc.auto=0"]
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_TEMPLATE_DIR": "",  # a repository has 15 files of it, which no test reads
    }
    # A git hook that runs the tests passes its own repository to them; ours is another one.
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX"):
        environment.pop(name, None)
    done = run_program(["git", *identity, *arguments], cwd=folder, env=environment, check=True)
    return done.stdout.strip()


def make_repository(folder: Path, files: Mapping[str, str]) -> str:
    """Write files into a folder and commit all that it has; return the commit."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q", "-b", "main")
    return commit_all(folder)


def commit_all(folder: Path, message: str = "one") -> str:
    """Commit everything that a repository's folder has; return the commit."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)
    return git(folder, "rev-parse", "HEAD")


@cache
def _filled_folder(make: Callable[[Path], object]) -> TemporaryDirectory[str]:
    """Return a temporary folder that `make` has filled; it is removed when this process ends."""
    folder = TemporaryDirectory(prefix="scratch-")
    make(Path(folder.name))
    return folder


def copy_filled(make: Callable[[Path], object], folder: Path) -> None:
    """Fill `folder` with what `make` writes; `make` runs once, because git's commands are slow."""
    shutil.copytree(_filled_folder(make).name, folder, symlinks=True, dirs_exist_ok=True)


@cache
def commit_of(make: Callable[[Path], object], ref: str) -> str:
    """Return the commit of a ref in the repository that `make` writes."""
    return git(Path(_filled_folder(make).name), "rev-parse", ref)


@dataclass
class Scratch:
    """A lab's repository, the repository that it cites, and a cache."""

    root: Path
    commit: str = field(init=False)

    def __post_init__(self) -> None:
        """Create both repositories, the two notes, the pin and the lock."""
        copy_filled(_make_scratch, self.root)
        self.commit = self.upstream.joinpath(".git/refs/heads/main").read_text().strip()

    def fill(self) -> None:
        """Write all files of an empty folder."""
        self.commit = make_repository(self.upstream, {"pkg/scaler.py": UPSTREAM})
        git(self.upstream, "tag", "v1")
        self.lab.mkdir(parents=True)
        git(self.book, "init", "-q", "-b", "main")
        self.write("lab.toml", LAB)
        self.write("up-sha.txt", f"{self.commit}\n")
        self.write("note.md", NOTE.format(commit=self.commit[:12]))
        self.write("note.es.md", NOTA.format(commit=self.commit[:12]))
        self.lock()

    @property
    def upstream(self) -> Path:
        """Where the cited repository is."""
        return self.root / "upstream"

    @property
    def book(self) -> Path:
        """The workbook's own repository."""
        return self.root / "book"

    @property
    def lab(self) -> Path:
        """The lab's folder."""
        return self.book / "experiments" / "01-scratch"

    def write(self, name: str, text: str) -> None:
        """Write one of the lab's files."""
        self.lab.joinpath(name).write_text(text, encoding="utf-8")

    def read(self, name: str) -> str:
        """Read one of the lab's files."""
        return self.lab.joinpath(name).read_text(encoding="utf-8")

    def replace(self, name: str, old: str, new: str) -> None:
        """Change one of the lab's files; `old` must be in it."""
        text = self.read(name)
        assert old in text, f"{old!r} is not in {name}"
        self.write(name, text.replace(old, new))

    def replace_both(self, old: str, new: str) -> None:
        """Change the note and its translation; `old` must be in both."""
        self.replace("note.md", old, new)
        self.replace("note.es.md", old, new)

    def release(self, changes: dict[str, str]) -> None:
        """Commit what the upstream's folder has; pin it, and change both notes as they need."""
        old, self.commit = self.commit, commit_all(self.upstream)
        self.write("up-sha.txt", f"{self.commit}\n")
        for name in ("note.md", "note.es.md"):
            for before, after in ({old[:12]: self.commit[:12]} | changes).items():
                self.replace(name, before, after)

    def bench(self, *, mirror: bool = True) -> CheckSession:
        """Return a bench with its own cache, the upstream as a mirror, and no network."""
        cache = self.root / "cache"
        mirrors = {"up": self.upstream} if mirror else {}
        library = Library(
            store=Store(cache), mirrors=mirrors, offline=True, progress=lambda _: None
        )
        return CheckSession(DiskCache(cache / "memo"), library)

    def check(self, *pages: str, mirror: bool = True) -> Report:
        """Check the lab, or some of its pages."""
        wanted = {self.lab / name for name in pages} or None
        return check_lab(self.lab, self.bench(mirror=mirror), wanted)

    def codes(self, *pages: str, mirror: bool = True) -> list[str]:
        """Return the codes of the findings, ordered by file and position."""
        return [finding.code for finding in self.check(*pages, mirror=mirror).findings]

    def lock(self) -> RelockResult:
        """Write the lock from the pages."""
        relocked = relock(open_lab(self.lab, self.bench()))
        self.write("citations.lock", lock_file.dump(relocked.lock))
        return relocked

    def run(self, *arguments: str, mirror: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run the command line as a user would, in the workbook's folder."""
        environment = {**os.environ, "SHARDBOOK_CACHE": str(self.root / "cache"), "NO_COLOR": "1"}
        environment.pop("SHARDBOOK_MIRROR_UP", None)
        if mirror:
            environment["SHARDBOOK_MIRROR_UP"] = str(self.upstream)
        return run_shardbook(*arguments, folder=self.book, environment=environment)


def _make_scratch(folder: Path) -> None:
    scratch = Scratch.__new__(Scratch)
    scratch.root = folder
    scratch.fill()
