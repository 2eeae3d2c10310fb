"""A package index on this machine, as bad as a test wants it, which counts what it moves."""

import hashlib
import json
import os
import re
import socket
import threading
import zipfile
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAME, VERSION = "shardbook-trial", "1.0"
WHEEL = "shardbook_trial-1.0-py3-none-any.whl"
INFO = "shardbook_trial-1.0.dist-info"
FILLER = 12_000_000  # bytes that no one asks for


def make_wheel(
    folder: Path, files: dict[str, bytes], *, filler: int = FILLER, name: str = WHEEL
) -> Path:
    """Write a wheel that holds `files`, and much else."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    contents = {
        **files,
        f"{INFO}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n".encode(),
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trial/filler.bin", os.urandom(filler), zipfile.ZIP_STORED)
        for member, data in contents.items():
            archive.writestr(member, data)
            digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{member},sha256={digest},{len(data)}\n"
        archive.writestr(f"{INFO}/RECORD", record + f"{INFO}/RECORD,,\n")
    return path


@dataclass
class Index:
    """A running index.

    `login` is the `user:password` that it asks for; `before_page` is called before a page is
    handed out; `hashes` gives a file another hash than its own, '' for none.
    """

    files: dict[str, bytes]
    page: bytes | None = None
    json: bool = False
    hashes: dict[str, str] = field(default_factory=dict)
    login: str = ""
    ranges: bool = True
    status: int = 0
    before_page: Callable[[], object] = lambda: None
    moved: int = 0
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def asked_for(self, what: str) -> int:
        """Return how many requests named `what`."""
        return sum(what in request for request in self.requests)

    def listing(self) -> tuple[str, bytes]:
        """Return the page of the project, and of which type it is."""
        if self.page is not None:
            return "text/html", self.page
        hashes = {
            name: self.hashes.get(name, hashlib.sha256(data).hexdigest())
            for name, data in self.files.items()
        }
        if self.json:
            files = [
                {
                    "filename": name,
                    "url": f"/files/{name}",
                    "hashes": {"sha256": digest} if digest else {},
                }
                for name, digest in hashes.items()
            ]
            body = {"meta": {"api-version": "1.0"}, "name": NAME, "files": files}
            return "application/vnd.pypi.simple.v1+json", json.dumps(body).encode()
        links = "".join(
            f'<a href="/files/{name}{f"#sha256={digest}" if digest else ""}">{name}</a>'
            for name, digest in hashes.items()
        )
        return "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Say nothing: a client that was given up on goes away."""


@contextmanager
def nobody_there() -> Iterator[str]:
    """Yield the address of an index that refuses every connection.

    The port is bound for as long as it must stay silent: freed, the system may give it to the
    index of another worker's test, which then answers.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/simple"


@contextmanager
def serving(*wheels: Path, **settings: Any) -> Iterator[Index]:
    """Serve an index on a port of the system's choosing."""
    named = {path.name if path.suffix == ".whl" else WHEEL: path.read_bytes() for path in wheels}
    index = Index(named, **settings)
    server = _Server(("127.0.0.1", 0), _handler(index))
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    # Looked at this often, whether it shall end: by default that takes up to half a second.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.socket.close()
        thread.join()


def _handler(index: Index) -> type[BaseHTTPRequestHandler]:
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
            headers: dict[str, str] = {}
            allowed = f"Basic {b64encode(index.login.encode()).decode()}"
            if index.status:
                status, data = index.status, b""
            elif index.login and self.headers.get("Authorization") != allowed:
                status, data = 401, b""
            elif self.path.startswith("/files/"):
                status, data, headers = self._ranged(index.files.get(self.path[7:]))
            else:
                index.before_page()
                kind, data = index.listing()
                status, headers = 200, {"Content-Type": kind}
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                # Before the reader has it: later, the question after this one may count it.
                index.moved += len(data)
                self.wfile.write(data)

        def _ranged(self, whole: bytes | None) -> tuple[int, bytes, dict[str, str]]:
            if whole is None:
                return 404, b"", {}
            requested = re.match(r"bytes=(\d*)-(\d*)$", self.headers.get("Range", ""))
            if not requested or not index.ranges:
                return 200, whole, {}
            first = int(requested[1]) if requested[1] else max(0, len(whole) - int(requested[2]))
            last = (
                min(int(requested[2]), len(whole) - 1)
                if requested[1] and requested[2]
                else len(whole) - 1
            )
            span = f"bytes {first}-{last}/{len(whole)}"
            return 206, whole[first : last + 1], {"Content-Range": span, "Accept-Ranges": "bytes"}

    return Handler
