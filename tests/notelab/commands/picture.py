"""The README's picture: what `shardbook check` really prints when a citation has slipped.

`python -m tests.notelab.commands.picture` plants the fault in a copy of lab 03 and draws the
terminal.
"""

import html
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.notelab import faults
from tests.notelab.real import real_bench

NOTE = (faults.LAB / "fsdp-prefetch.md").as_posix()
WIDTH = 88  # columns: shrunk into a page, its letters are still read
PICTURE = faults.ROOT / "docs/assets/check.svg"
THEME = TerminalTheme(
    (16, 20, 30),
    (214, 220, 232),
    [
        (16, 20, 30),
        (240, 113, 120),
        (127, 217, 140),
        (240, 198, 116),
        (115, 170, 240),
        (200, 146, 234),
        (110, 205, 217),
        (160, 170, 190),
    ],
)


def printed() -> str:
    """Return what the command prints: its findings and its last line, the tables between left out.

    What those say (how many files are at hand) is another on each machine.
    """
    with tempfile.TemporaryDirectory() as folder:
        book = faults.copy_of_the_lab(Path(folder) / "book", real_bench())
        note = book.root / NOTE
        text = note.read_text("utf-8")
        slipped = text.replace("_flat_param.py:L1103-L1113`", "_flat_param.py:L1106-L1116`")
        assert slipped != text
        note.write_text(slipped, "utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "notelab", "check", NOTE, "--offline"],
            cwd=book.root,
            env={**os.environ, "FORCE_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1, done.stderr
    findings, *_, last = done.stdout.strip().split("\n\n")
    return f"{findings}\n…\n{last}"


def drawn(text: str) -> str:
    """Return a terminal that shows the command and this text, as SVG."""
    console = Console(record=True, width=WIDTH, file=Path(os.devnull).open("w"))  # noqa: SIM115
    console.print(Text(f"$ shardbook check {NOTE}", style="bold"))
    console.print(Text.from_ansi(text), soft_wrap=False)
    svg = console.export_svg(title="shardbook check", theme=THEME)
    # The reader's own monospaced font: a picture that fetches one would ask another host.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def words(svg: str) -> str:
    """Return what a terminal drawn as SVG says."""
    return " ".join(html.unescape(" ".join(re.findall(r"<text [^>]*>([^<]*)", svg))).split())


if __name__ == "__main__":
    PICTURE.write_text(drawn(printed()), "utf-8")
    print(words(PICTURE.read_text("utf-8")))
