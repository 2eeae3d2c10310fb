"""Serves a folder to a browser on this machine, on a free port."""

from __future__ import annotations

import functools
import http.server
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
