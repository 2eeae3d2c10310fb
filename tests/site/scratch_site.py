"""A small workbook with the real site's configuration, for building, serving and breaking."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.notelab.scratch import Scratch
from tests.running import run_program

REPOSITORY = Path(__file__).parents[2]
NAV = """
nav:
  - docs/index.md
  - Notes:
      - experiments/01-scratch/note.md
"""


def make_site(scratch: Scratch) -> Path:
    """Add the files of a site to a scratch lab's repository; return the repository's folder."""
    book = scratch.book
    docs = book / "docs"
    shutil.copytree(
        REPOSITORY / "docs" / "assets", docs / "assets", ignore=shutil.ignore_patterns("*.png")
    )
    link = "[note](../experiments/01-scratch/note.md)"
    (docs / "index.md").write_text(f"---\ntitle: Scratch book\n---\n\n# Scratch book\n\n{link}\n")
    (docs / "index.es.md").write_text(
        f"---\ntitle: Cuaderno\n---\n\n# Cuaderno\n\n{link.replace('.md', '.es.md')}\n"
    )
    settings = (REPOSITORY / "mkdocs.yml").read_text().split("\nnav:\n")[0]
    hooks = str(REPOSITORY / "tools/sitelab/hooks.py")
    (book / "mkdocs.yml").write_text(settings.replace("tools/sitelab/hooks.py", hooks) + NAV)
    return book


def add_local_lab(scratch: Scratch) -> Path:
    """Add a lab that mkdocs.yml doesn't list, and local results, to a scratch workbook."""
    book = make_site(scratch)
    lab = book / "experiments" / "my & reading"
    lab.mkdir()
    (lab / "note.md").write_text("# What I read\n\nSee [the other](../01-scratch/note.md).\n")
    local = book / "experiments" / "01-scratch" / "results" / "local"
    local.mkdir(parents=True)
    for name, title in {"RESULTS.md": "Measured here", "RESULTS.es.md": "Medido aquí"}.items():
        (local / name).write_text(f"# {title}\n")
    (local / "run.json").write_text("{}")
    return book


def build_environment(scratch: Scratch) -> dict[str, str]:
    """Return the environment for mkdocs, with the scratch lab's own store."""
    return {
        **os.environ,
        "SHARDBOOK_CACHE": str(scratch.root / "cache"),
        "NO_MKDOCS_2_WARNING": "1",
    }


def build(scratch: Scratch, *options: str) -> subprocess.CompletedProcess[str]:
    """Build the scratch site into site/ of its repository."""
    return run_program(
        [sys.executable, "-m", "mkdocs", "build", *options],
        cwd=scratch.book,
        env=build_environment(scratch),
    )


@dataclass(frozen=True)
class BuiltSite:
    """A scratch workbook whose site was built strictly, and what mkdocs said."""

    scratch: Scratch
    output: str

    @property
    def book(self) -> Path:
        """The workbook's folder."""
        return self.scratch.book

    @property
    def folder(self) -> Path:
        """The site's folder."""
        return self.book / "site"
