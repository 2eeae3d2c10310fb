"""The README's picture: what `shardbook check` prints of lab 03, and of a citation that slipped."""

import html
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from notelab.book.opening import open_session
from pages.blocks import ROOT, PageError
from pages.faults.planting import LAB, copy_of_the_lab

NOTE = (LAB / "fsdp-prefetch.md").as_posix()
WIDTH = 51  # columns: shrunk into a telephone's page, its letters are still read
PICTURE = ROOT / "docs/assets/check.svg"
DARK, LIGHT = (16, 20, 30), (214, 220, 232)
RED, GREEN, YELLOW, BLUE = (240, 113, 120), (127, 217, 140), (240, 198, 116), (115, 170, 240)
PURPLE, CYAN, GRAY = (200, 146, 234), (110, 205, 217), (160, 170, 190)
THEME = TerminalTheme(DARK, LIGHT, [DARK, RED, GREEN, YELLOW, BLUE, PURPLE, CYAN, GRAY])


def printed() -> tuple[str, str]:
    """Return what the command prints of the note as it is, and with a citation that slipped.

    Of the one its last line; of the other the note's own finding too. The tables between are left
    out: what they say (how many files are at hand) is another on each machine.
    """
    with tempfile.TemporaryDirectory() as folder:
        book = copy_of_the_lab(Path(folder) / "book", open_session(()))
        note = book.root / NOTE
        lab = note.with_name("lab.toml")
        lab_file = lab.read_text("utf-8").replace('languages = ["en", "es"]', 'languages = ["en"]')
        # As a learner's own: a fault is one finding, not one a language.
        lab.write_text(lab_file, "utf-8")
        good = _checked(note, 0)
        text = note.read_text("utf-8")
        slipped = text.replace("_flat_param.py:L1103-L1113`", "_flat_param.py:L1106-L1116`")
        if slipped == text:
            raise PageError(f"{NOTE} no longer cites the lines that slip in the picture")
        note.write_text(slipped, "utf-8")
        bad = _checked(note, 1)
    finding, *_, last = bad.split("\n\n")
    return good.split("\n\n")[-1], f"{finding}\n…\n{last}"


def _checked(note: Path, code: int) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "notelab", "check", "-v", note.name, "--offline"],
        cwd=note.parent,
        env={**os.environ, "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != code:
        raise PageError(
            f"shardbook check ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout.strip()


def drawn(printed: tuple[str, str]) -> str:
    """Return a terminal that shows the command, twice, and what it printed, as SVG."""
    console = Console(record=True, width=WIDTH, file=Path(os.devnull).open("w"))  # noqa: SIM115
    good, bad = printed
    command = Text(f"$ shardbook check -v {Path(NOTE).name}", style="bold")
    for line in (command, "…", Text.from_ansi(good), "", command, Text.from_ansi(bad)):
        console.print(line, soft_wrap=False)
    svg = console.export_svg(title="shardbook check", theme=THEME)
    svg = svg.replace("font-size: 18px", "font-size: 20px")  # a telephone shows 11 px of it
    # The reader's own monospaced font: a picture that fetches one would ask another host.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def normalize(svg: str) -> str:
    """Return what a terminal drawn as SVG says."""
    return " ".join(html.unescape(" ".join(re.findall(r"<text [^>]*>([^<]*)", svg))).split())


def render() -> Iterator[tuple[Path, str]]:
    """Yield the picture."""
    yield PICTURE, drawn(printed())
