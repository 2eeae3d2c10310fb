"""Serves a workbook on this machine, by `mkdocs serve`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.free_port import free_port
from tests.limits import LIMIT

REPOSITORY = Path(__file__).parents[2]
NOTE = "experiments/35-reading-notes/megatron-tp-layers"


def copy_workbook(folder: Path) -> Path:
    """Copy the files of the site into `folder`, so that a note can change; return the folder."""
    for name in ("docs", "experiments", "solutions"):
        shutil.copytree(REPOSITORY / name, folder / name)
    (folder / ".git").mkdir()  # the edge of a repository: labs share pins within it
    settings = (REPOSITORY / "mkdocs.yml").read_text()
    hooks = str(REPOSITORY / "tools/sitelab/hooks.py")
    (folder / "mkdocs.yml").write_text(settings.replace("tools/sitelab/hooks.py", hooks))
    return folder


@contextmanager
def serve_live(book: Path, only: str = "en") -> Iterator[str]:
    """Run `mkdocs serve` in `book` as `make serve ONLY=…` does; yield its address once it answers.

    The port is whichever is free. What mkdocs said is in served.log afterwards.
    """
    port = free_port()
    with (book / "served.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-u", "-m", "mkdocs", "serve", "--dev-addr", f"127.0.0.1:{port}"],
            cwd=book,
            env={**os.environ, "SHARDBOOK_ONLY": only},
            stdout=log,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stderr is not None
        output = []
        for line in server.stderr:  # it says where it serves once the first build is done
            output.append(line)
            if "Serving on" in line:
                break
        else:
            raise RuntimeError(f"mkdocs serve ended: {''.join(output)}")
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            log.write("".join(output) + server.communicate(timeout=LIMIT)[1])


def get(address: str) -> str:
    """Return the page at an address."""
    with urlopen(address, timeout=LIMIT) as answer:
        return str(answer.read().decode())


def seconds_to_page(
    book: Path,
    address: str,
    sentence: str,
    source: str = NOTE,
    change: Callable[[str], str] = str,
) -> float:
    """Save a sentence at a page's end; return the seconds until the served page shows it.

    `change` changes the page's text in the same save.
    """
    place = f"{address}{source.removeprefix('docs/')}/"
    page = get(place)
    assert sentence not in page
    epoch, request = re.findall(r"livereload\((\d+), (\d+)\)", page)[0]
    file = book / f"{source}.md"
    file.write_text(f"{change(file.read_text('utf-8'))}\n{sentence}\n", "utf-8")
    began = time.monotonic()
    get(f"{address}livereload/{epoch}/{request}")  # answers once a newer build is served
    assert sentence in get(place)
    return time.monotonic() - began
