"""`shardbook check --watch`: check again whenever a file is saved that the labs hang on."""

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from notelab.book.finding_labs import asked
from notelab.errors import NotelabError
from notelab.lab import lab as lab_file
from notelab.lab import pages
from notelab.lab.lab import Lab
from notelab.report.terminal import say, wants_colour, write

_PAUSE = 0.2  # seconds between two looks: a thousandth of a processor for a lab
_CLEAR = "\x1b[2J\x1b[H"
Stamps = dict[Path, tuple[int, int, int]]


def keep_checking(paths: tuple[Path, ...], once: Callable[[], int]) -> int:
    """Run `once` now and after every change, until interrupted; return how the last one ended.

    A lab file that can't be read while it is being edited is said, and waited for.

    Raises:
        NotelabError: it can't be read from the start.
    """
    labs = _labs(paths)
    status = 0
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            seen = _stamps(labs)
            write(_CLEAR if wants_colour() else "")
            try:
                labs = _labs(paths)
                status = once()
            except NotelabError as fault:
                say(f"error: {fault}" + (f"; {fault.hint}" if fault.hint else ""), stderr=True)
            say("watching; Ctrl-C ends", stderr=True)
            gc.collect()  # off while checking
            while _stamps(labs) == seen:
                time.sleep(_PAUSE)
    return status


def _labs(paths: tuple[Path, ...]) -> list[Lab]:
    return [lab_file.load(folder) for folder in asked(list(paths), lab_file.load)[0]]


def _stamps(labs: Iterable[Lab]) -> Stamps:
    """Return when each file that the labs hang on was written, and which file it is."""
    found: Stamps = {}
    for lab in labs:
        files = [page.path for page in pages.list_pages(lab)]
        for folder in {lab.folder, lab.pins_folder}:
            with contextlib.suppress(OSError):  # as long as another branch is checked out
                files += folder.iterdir()
        for path in files:
            with contextlib.suppress(OSError):
                known = os.stat(path)  # noqa: PTH116 (Path is slow, and asked for each file)
                found[path] = (known.st_mtime_ns, known.st_size, known.st_ino)
    return found
