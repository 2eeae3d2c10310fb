"""A pipe, folder, socket or device in place of a file is an error or a finding; nothing hangs."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from notelab.files import read_regular
from notelab.lab import pages, pins
from notelab.lab.lab_file import read_limited
from tests.notelab.scratch import Scratch


def pipe(path: Path) -> None:
    """Create a named pipe without a writer."""
    os.mkfifo(path)


def folder(path: Path) -> None:
    """Create a folder."""
    path.mkdir()


def unix_socket(path: Path) -> None:
    """Create a socket by its short name; an address has about a hundred bytes."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    """Create a link to a device that never ends."""
    path.symlink_to("/dev/zero")


KINDS = {"named pipe": pipe, "folder": folder, "socket": unix_socket, "device": device}
Kind = pytest.mark.parametrize(("kind", "make"), KINDS.items())
Make = Callable[[Path], None]


def put(scratch: Scratch, name: str, make: Make) -> None:
    """Replace one of the lab's files by something else."""
    path = scratch.lab / name
    path.unlink(missing_ok=True)
    make(path)


@Kind
def test_what_is_no_file_is_refused_by_its_kind(tmp_path: Path, kind: str, make: Make) -> None:
    make(tmp_path / "x")
    with pytest.raises(OSError, match=f"it is a {kind}"):
        read_regular(tmp_path / "x", 10)


@Kind
@pytest.mark.parametrize("name", ["lab.toml", "citations.lock"])
def test_a_lab_file_or_lock_must_be_a_file(
    scratch: Scratch, name: str, kind: str, make: Make
) -> None:
    put(scratch, name, make)
    done = scratch.run("check", str(scratch.lab))
    linked = kind == "device" and name == "citations.lock"
    message = "a lock must be a file, not a link" if linked else f"it is a {kind}"
    assert done.returncode == 2 and message in done.stderr
    assert f"01-scratch/{name}" in done.stderr


@Kind
def test_a_pin_that_is_no_file_is_a_finding(scratch: Scratch, kind: str, make: Make) -> None:
    put(scratch, "up-sha.txt", make)
    findings = [finding for finding in scratch.check().findings if finding.code == "N120"]
    message = "symbolic link" if kind == "device" else f"it is a {kind}"
    assert len(findings) == 1 and message in findings[0].message


@Kind
@pytest.mark.parametrize("name", ["note.md", "note.es.md", "more.md"])
def test_a_page_must_be_a_file(scratch: Scratch, name: str, kind: str, make: Make) -> None:
    scratch.replace("lab.toml", 'title = "Scratch"', 'title = "Scratch"\npages = ["*.md"]')
    put(scratch, name, make)
    if kind == "device" and name == "note.md":
        done = scratch.run("check", str(scratch.lab))
        assert done.returncode == 2 and "leaves the repository" in done.stderr
        return
    findings = [
        finding for finding in scratch.check().findings if finding.filename.endswith(f"/{name}")
    ]
    message = "symbolic link" if kind == "device" else f"is a {kind}"
    assert [finding.code for finding in findings] == ["N102"] and message in findings[0].message


@Kind
def test_a_results_pages_input_must_be_a_file(scratch: Scratch, kind: str, make: Make) -> None:
    put(scratch, "in.json", make)
    input_line = f"<!-- generated from in.json sha256:{'0' * 64} -->"
    scratch.write("RESULTS.md", f'{input_line}\n\n<a id="r"></a> **1**\n')
    scratch.replace("note.md", "In lab 02", "In lab 02 [1](RESULTS.md#r)")
    assert "N404" in scratch.codes()


def test_an_ignore_file_that_is_a_pipe_names_nothing(scratch: Scratch) -> None:
    os.mkfifo(scratch.book / ".gitignore")
    done = scratch.run("check")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_that_is_one_is_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("x")
    assert read_regular(tmp_path / "link", 10) == b"0123456789"
    assert read_regular(tmp_path / "x", 4) == b"0123"
    assert read_limited(10, tmp_path / "x") == b"0123456789"
    assert read_limited(10, tmp_path / "none") is None


@pytest.mark.parametrize("size", [1, 16 * 1024 - 1, 16 * 1024, 40_000, pages.MAX_BYTES])
def test_a_page_is_read_whole_up_to_what_is_too_much(tmp_path: Path, size: int) -> None:
    page = tmp_path / "note.md"
    page.write_text("x" * size)
    assert pages.read(page) == pages.Text("x" * size)
    page.write_text("x" * (pages.MAX_BYTES + 1))
    assert pages.read(page).problem == "is larger than 256 KiB; not read"
    for missing in (tmp_path / "none.md", page / "below.md"):
        assert pages.read(missing).problem == pages.MISSING


def test_a_pin_is_read_while_a_lab_has_none_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "pin.txt").write_text("0" * 40 + "\n")
    assert pins.read("up", tmp_path / "pin.txt").commit == "0" * 40
    shutil.rmtree(tmp_path)
    assert pins.read("up", tmp_path / "pin.txt").code == "N120"


def link_outside(scratch: Scratch, name: str) -> Path:
    """Put a page outside of the repository; return the lab's link that leads to it."""
    scratch.replace(
        "lab.toml", 'title = "Scratch"', 'title = "Scratch"\npages = ["*/*.md", "*.md"]'
    )
    outer_folder = scratch.root / "beside"
    outer_folder.mkdir()
    (outer_folder / "page.md").write_text("# s3cret\n")
    link = scratch.lab / name
    link.symlink_to(outer_folder if link.suffix == "" else outer_folder / "page.md")
    return link


@pytest.mark.parametrize(("name", "page"), [("link.md", "link.md"), ("linked", "linked/page.md")])
def test_a_page_linked_from_outside_is_not_read(scratch: Scratch, name: str, page: str) -> None:
    link_outside(scratch, name)
    (finding,) = scratch.check().findings
    assert finding.filename.endswith(f"01-scratch/{page}")
    assert finding.code == "N102" and "leads out of the repository" in finding.message
    assert "s3cret" not in str(scratch.check())


def test_a_page_whose_link_leaves_the_repository_is_found_by_its_name_too(scratch: Scratch) -> None:
    done = scratch.run("check", str(link_outside(scratch, "link.md")))
    assert done.returncode == 1 and "leads out of the repository" in done.stdout


def test_a_link_to_another_page_of_the_repository_is_that_page(scratch: Scratch) -> None:
    scratch.replace("lab.toml", 'title = "Scratch"', 'title = "Scratch"\npages = ["*.md"]')
    (scratch.lab / "link.md").symlink_to("note.md")
    assert scratch.codes() == []
    assert scratch.run("check", str(scratch.lab / "link.md")).returncode == 0
