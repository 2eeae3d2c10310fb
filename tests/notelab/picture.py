"""The README's picture: what `shardbook check` really prints when a citation has slipped.

`python -m tests.notelab.picture` plants the fault in a copy of lab 03 and draws the terminal.
"""

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


def main() -> None:
    """Draw the picture."""
    with tempfile.TemporaryDirectory() as folder:
        book = faults.copy_of_the_lab(Path(folder) / "book", real_bench())
        note = book.lab / "fsdp-prefetch.md"
        text = note.read_text("utf-8")
        slipped = text.replace("_flat_param.py:L1103-L1113`", "_flat_param.py:L1106-L1116`")
        assert slipped != text
        note.write_text(slipped, "utf-8")
        command = ["shardbook", "check", note.relative_to(book.root).as_posix()]
        done = subprocess.run(
            [sys.executable, "-m", "notelab", *command[1:], "--offline"],
            cwd=book.root,
            env={**os.environ, "FORCE_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1, done.stderr
    console = Console(record=True, width=118, file=Path(os.devnull).open("w"))  # noqa: SIM115
    console.print(Text("$ " + " ".join(command), style="bold"))
    console.print(Text.from_ansi(done.stdout.rstrip()), soft_wrap=False)
    svg = console.export_svg(title="shardbook check", theme=THEME)
    # The reader's own monospaced font: a picture that fetches one would ask another host.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    PICTURE.write_text(svg, "utf-8")
    print(done.stdout)


if __name__ == "__main__":
    main()
