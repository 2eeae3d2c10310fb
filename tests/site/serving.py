"""Serves a site on this machine: a built folder, or a workbook by `mkdocs serve`."""

from __future__ import annotations

import functools
import http.server
import io
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
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


class _Silent(http.server.SimpleHTTPRequestHandler):
    """Serves files, or the content that replaces a file, and logs nothing."""

    def __init__(self, *args: Any, instead: dict[str, bytes], **settings: Any) -> None:
        self._instead = instead
        super().__init__(*args, **settings)

    def send_head(self) -> Any:
        """Send the headers; return the open content."""
        content = self._instead.get(self.path)
        if content is None:
            return super().send_head()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(self.path))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return io.BytesIO(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def serving(folder: Path, instead: dict[str, bytes] | None = None) -> Iterator[str]:
    """Serve `folder` inside a with statement; yield its address, which ends in a slash.

    Args:
        instead: by address, from its first slash on, what to give in place of the file.
    """
    handler = functools.partial(_Silent, directory=str(folder), instead=instead or {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
