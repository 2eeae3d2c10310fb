"""A page is read from its own file, whole, or what is wrong with it is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from notelab.lab import pages


@pytest.mark.parametrize("target_exists", [True, False])
def test_a_link_is_not_followed_wherever_it_leads(tmp_path: Path, target_exists: bool) -> None:
    secret = tmp_path / "secret"
    if target_exists:
        secret.write_text("not yours\n")
    link = tmp_path / "note.es.md"
    link.symlink_to(secret)
    assert pages.read(link) == pages.Text("", "is a symbolic link; not followed")


def test_a_pipe_is_not_waited_for_and_a_folder_is_no_page(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    for name, kind in (("pipe.md", "named pipe"), (".", "folder")):
        assert pages.read(tmp_path / name).problem == f"is a {kind}, not a file"
    assert pages.read(tmp_path / "none.md").problem == pages.MISSING
    assert pages.read(tmp_path / "pipe.md" / "below.md").problem == pages.MISSING


@pytest.mark.parametrize("size", [1, 16 * 1024 - 1, 16 * 1024, 40_000, pages.MAX_BYTES])
def test_a_page_is_read_whole_up_to_what_is_too_much(tmp_path: Path, size: int) -> None:
    page = tmp_path / "note.md"
    page.write_text("x" * size)
    assert pages.read(page) == pages.Text("x" * size)
    page.write_text("x" * (pages.MAX_BYTES + 1))
    assert pages.read(page).problem == "is larger than 256 KiB; not read"
