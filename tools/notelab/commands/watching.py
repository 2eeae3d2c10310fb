"""`shardbook check --watch`: checks again whenever a file that affects the labs is saved."""

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from notelab.book.discovery import list_worktree_files, select_labs
from notelab.errors import NotelabError
from notelab.lab import lab as lab_file
from notelab.lab import pages
from notelab.lab.lab import Lab
from notelab.report.terminal import say, wants_colour, write

_PAUSE = 0.2  # seconds between two looks, which cost a thousandth of a processor for a lab
_CLEAR = "\x1b[2J\x1b[H"
Stamps = dict[Path, tuple[int, int, int]]


def keep_checking(paths: tuple[Path, ...], check: Callable[[], int]) -> int:
    """Run `check` now and after every change, until interrupted; return the last exit status.

    If a lab file can't be read while it is being edited, the error is printed and watching goes on.

    Raises:
        NotelabError: a lab file can't be read at the start.
    """
    labs = _labs(paths)
    status = 0
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            seen = _stamps(labs)
            write(_CLEAR if wants_colour() else "")
            try:
                labs = _labs(paths)
                status = check()
            except NotelabError as fault:
                say(f"error: {fault}" + (f"; {fault.hint}" if fault.hint else ""), stderr=True)
            say("watching for changes; Ctrl-C ends", stderr=True)
            gc.collect()  # the collector is off during checks
            while _stamps(labs) == seen:
                time.sleep(_PAUSE)
    return status


def _labs(paths: tuple[Path, ...]) -> list[Lab]:
    return [lab_file.load(folder) for folder in select_labs(list(paths), lab_file.load)[0]]


def _stamps(labs: Iterable[Lab]) -> Stamps:
    """Return time, size and inode of each file that affects the labs."""
    stamps: Stamps = {}
    for lab in labs:
        files = [*(page.path for page in pages.list_pages(lab)), *list_worktree_files(lab)]
        for folder in {lab.folder, lab.pins_folder}:
            # The folder may vanish when another branch is checked out.
            with contextlib.suppress(OSError):
                files += folder.iterdir()
        for path in files:
            with contextlib.suppress(OSError):
                status = os.stat(path)  # noqa: PTH116 (Path is slow, and asked for each file)
                stamps[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return stamps
