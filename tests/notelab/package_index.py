"""A package index of one wheel, served on this machine, which counts the bytes it hands out."""

import hashlib
import os
import re
import threading
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAME, VERSION = "shardbook-trial", "1.0"
WHEEL = "shardbook_trial-1.0-py3-none-any.whl"
INFO = "shardbook_trial-1.0.dist-info"
FILLER = 12_000_000  # bytes that no one asks for


def make_wheel(folder: Path, files: dict[str, bytes], *, filler: int = FILLER) -> Path:
    """Write a wheel that holds `files`, and much else."""
    path = folder / WHEEL
    contents = {
        **files,
        f"{INFO}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n".encode(),
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trial/filler.bin", os.urandom(filler))
        for name, data in contents.items():
            archive.writestr(name, data)
            digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
        archive.writestr(f"{INFO}/RECORD", record + f"{INFO}/RECORD,,\n")
    return path


@dataclass
class Index:
    """A running index."""

    wheel: bytes
    page: bytes
    ranges: bool = True
    moved: int = 0
    requests: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(wheel: Path | None = None, page: bytes | None = None) -> Iterator[Index]:
    """Serve an index on a port of the system's choosing."""
    link = f'<!DOCTYPE html><html><body><a href="/files/{WHEEL}">{WHEEL}</a></body></html>'
    index = Index(wheel.read_bytes() if wheel else b"", page or link.encode())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            index.requests.append(f"{self.command} {self.path} {self.headers.get('Range', '')}")
            whole = index.wheel if self.path.startswith("/files/") else index.page
            data, status = whole, 200
            asked = re.match(r"bytes=(\d*)-(\d*)$", self.headers.get("Range", ""))
            if asked and index.ranges and whole is index.wheel:
                first = int(asked[1]) if asked[1] else max(0, len(whole) - int(asked[2]))
                last = min(int(asked[2]), len(whole) - 1) if asked[1] and asked[2] else None
                last = len(whole) - 1 if last is None else last
                data, status = whole[first : last + 1], 206
            self.send_response(status)
            if index.ranges:
                self.send_header("Accept-Ranges", "bytes")
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(whole)}")
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)
                index.moved += len(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
