"""`make serve` answers this machine's names alone, and its pages reload under their policy."""

from __future__ import annotations

from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sitelab.theme.local_server import is_local
from tests.limits import LIMIT
from tests.notelab.scratch import Scratch
from tests.site.live_server import serve_live
from tests.site.reader import Reader
from tests.site.scratch_site import make_site


@pytest.mark.parametrize(
    ("host", "configured", "answered"),
    [
        ("127.0.0.1:8000", "127.0.0.1", True),
        ("localhost:8000", "127.0.0.1", True),
        ("LOCALHOST", "127.0.0.1", True),
        ("[::1]:8000", "::1", True),
        ("192.168.0.7:8000", "0.0.0.0", True),
        ("desk.lan:8000", "desk.lan", True),
        ("evil.example:8000", "127.0.0.1", False),
        ("localhost.evil.example", "127.0.0.1", False),
        ("127.0.0.1.evil.example:8000", "127.0.0.1", False),
        ("", "", False),
        ("evil.example@localhost", "127.0.0.1", False),
    ],
)
def test_this_machine_is_known_by_number_as_localhost_or_as_was_asked(
    host: str, configured: str, answered: bool
) -> None:
    assert is_local(host, configured) is answered


def status(address: str, host: str, path: str) -> int:
    """Return the status of the answer to a request whose Host header is `host`."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=LIMIT)
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert (b"Scratch book" in body) == (answer.status == 200)
    return answer.status


def test_another_hosts_name_is_refused_and_a_saved_page_reloads(
    tmp_path: Path, browser: Any
) -> None:
    book = make_site(Scratch(tmp_path))
    with serve_live(book) as address:
        port = urlsplit(address).port
        assert status(address, f"localhost:{port}", "/") == 200
        for path in ("/", "/search/search_index.json", "/livereload/0/0"):
            assert status(address, f"evil.example:{port}", path) == 403
        reader = Reader(browser, address, first_visit=True)
        page = reader.read("")
        with page.expect_navigation(), (book / "docs/index.md").open("a") as source:
            source.write("\nA sentence that was saved just now.\n")
        page.locator("text=saved just now").wait_for()
        assert not reader.wrong
        reader.close()
