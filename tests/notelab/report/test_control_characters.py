"""Whatever a file is called, no report hands a control or invisible character to who reads it."""

import json
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.notelab.scratch import Scratch

NAMES = [
    "a\x1bb", "a\x1b[31mb", "a\nb", "a\rb", "a\x9bb", "a\u202eb", "a\u200bb", "a\udcffb", "a::b",
    "a%b",
]  # fmt: skip
DRAWN = "we measure. ![x](x.png)"


def rename_lab(scratch: Scratch, name: str) -> Path:
    """Put the lab into a folder of another name, with a fault in its note and a page beside."""
    scratch.replace("note.md", "we measure.", DRAWN)
    scratch.replace("lab.toml", 'title = "Scratch"', 'title = "Scratch"\npages = ["*.md"]')
    folder = scratch.lab.with_name(name)
    scratch.lab.rename(folder)
    shutil.copy(folder / "note.md", folder / f"{name}.md")
    return folder


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_control_character_is_escaped_and_read_back(scratch: Scratch, name: str) -> None:
    rename_lab(scratch, name)
    reports = {}
    for output_format in ("text", "json", "github", "sarif"):
        done = scratch.run("check", "--output-format", output_format)
        assert done.returncode == 1, done.stderr
        assert all(ch.isprintable() or ch == "\n" for ch in done.stdout + done.stderr)
        reports[output_format] = done.stdout
    assert "N602" in reports["text"]
    commands = reports["github"].split("\n")[:-1]
    assert commands
    assert all(re.match("::error file=experiments/a[^:]*::[^:]", line) for line in commands)
    written = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    path = f"experiments/{written}/{written}.md"
    report, log = json.loads(reports["json"]), json.loads(reports["sarif"])
    assert path in {entry["filename"] for entry in report["findings"]}
    if "\udcff" not in name:  # then it is no page
        assert path in {entry["filename"] for entry in report["notes"]}
    places = [entry["locations"][0]["physicalLocation"] for entry in log["runs"][0]["results"]]
    uris = {unquote(place["artifactLocation"]["uri"], errors="replace") for place in places}
    assert path in uris
