"""`mkdocs serve` answers at once, and this machine's names alone; a saved change is shown.

How long that takes on the whole workbook stands in docs/reference/site.md (`make benchmark`).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort

from sitelab.hooks import Options, read_options
from sitelab.theme.local_server import is_local
from tests.free_port import free_port
from tests.limits import LIMIT
from tests.notelab.scratch import Scratch
from tests.site.reader import Reader
from tests.site.scratch_site import make_site
from tests.site.serving import copy_workbook, get, seconds_to_page, serve_live

SENTENCE = "A sentence that was saved just now."


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A scratch workbook's folder, and the address at which its site is served."""
    book = make_site(Scratch(tmp_path_factory.mktemp("live")))
    with serve_live(book) as address:
        yield book, address


def read_served_files(folder: Path, address: str) -> dict[str, bytes]:
    """Return the files that mkdocs serves at `address`, without it, from a folder in `folder`."""
    (site,) = folder.glob("mkdocs_*")
    files = (file for file in site.rglob("*") if file.is_file() and file.suffix != ".gz")
    return {
        file.relative_to(site).as_posix(): file.read_bytes().replace(address.encode(), b"")
        for file in files
    }


def rename_and_add_card(text: str) -> str:
    """Return a page's text with another title and one more recall card."""
    renamed = re.sub(r"^(title: |# )(?=\S)", r"\1New ", text, flags=re.MULTILINE)
    return f'{renamed}\n??? question saved-just-now "What is new?"\n    This card.\n'


def check_rebuilt_as_built(
    book: Path, folder: Path, sources: list[str], found: set[str], monkeypatch: pytest.MonkeyPatch
) -> dict[str, bytes]:
    """Save changes one after another; the served files must be those of a fresh build.

    Return them. The search finds the changes on the pages of `found`.
    """
    for name in ("rebuilt", "fresh"):
        monkeypatch.setenv("TMPDIR", str(temporary := folder / name))
        temporary.mkdir()
        with serve_live(book) as address:
            if name == "rebuilt":
                for source in sources:
                    seconds_to_page(book, address, SENTENCE, source, rename_and_add_card)
            files = read_served_files(temporary, address)
        assert "keywords in `sections`" not in (book / "served.log").read_text()
        if name == "rebuilt":
            rebuilt = files
    assert [name for name in files if files[name] != rebuilt.get(name)] == []
    assert rebuilt.keys() == files.keys()
    entries = json.loads(files["search/search_index.json"])["docs"]
    changed = [entry["location"] for entry in entries if SENTENCE in entry["text"]]
    assert {location.partition("#")[0] for location in changed} == found
    return files


def test_a_saved_page_is_built_as_a_fresh_build_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = make_site(Scratch(tmp_path / "scratch"))
    note = "experiments/01-scratch/note"
    check_rebuilt_as_built(book, tmp_path, [note], {f"{note}/"}, monkeypatch)


@pytest.mark.ci
def test_saved_pages_of_the_whole_workbook_are_built_as_a_fresh_build_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "book").mkdir()
    book = copy_workbook(tmp_path / "book")
    sources = [
        "solutions/01-three-d",  # a neighbour that no menu has
        "docs/theory/08-memory",
        "docs/reference/glossary",
        "experiments/35-reading-notes/fsdp-prefetch",
    ]
    found = {"theory/08-memory/", "reference/glossary/"}  # the other two answer labs
    files = check_rebuilt_as_built(book, tmp_path, sources, found, monkeypatch)
    # Names on an API page link to where they are explained.
    assert b"autorefs-internal" in files["reference/api/data/index.html"]


def test_the_address_answers_before_the_pages_are_built(tmp_path: Path) -> None:
    book, port = make_site(Scratch(tmp_path)), free_port()
    command = [sys.executable, "-m", "mkdocs", "serve", "--dev-addr", f"127.0.0.1:{port}"]
    server = subprocess.Popen(command, cwd=book, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        lines = iter(server.stderr.readline, "")
        announced = next(line for line in lines if "answers now" in line)
        assert f"http://127.0.0.1:{port}/" in announced
        answer = HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        answer.request("GET", "/")
        waiting = answer.getresponse()
        assert (waiting.status, waiting.headers["Refresh"]) == (503, "1")
        assert "being built" in waiting.read().decode()
        rest = [*takewhile(lambda line: "Serving on" not in line, lines)]
        assert "Scratch book" in get(f"http://127.0.0.1:{port}/")
        assert len(rest) <= 5, rest  # no line for each page
        second = subprocess.run(
            command, check=False, cwd=book, capture_output=True, text=True, timeout=LIMIT
        )
        assert second.returncode == 1
        assert f"be served at 127.0.0.1:{port} (Address already in use)" in second.stdout
    finally:
        server.terminate()
        server.communicate(timeout=LIMIT)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"edits": "https://example.org/"}, "unknown field `edits`; its options are edit, plain"),
        ({"edit": 7}, "Expected `str | null`, got `int` - at `$.edit`"),
        ({"serve": "fr"}, "Invalid enum value 'fr' - at `$.serve`"),
        (["edit"], "Expected `object`, got `array`"),
    ],
)
def test_a_wrong_option_of_the_site_gets_a_sentence(options: object, sentence: str) -> None:
    config = MkDocsConfig()
    config.extra = {"sitelab": options}
    with pytest.raises(Abort, match=re.escape(sentence)) as refused:
        read_options(config)
    assert str(refused.value).startswith("mkdocs.yml, extra.sitelab: ")


def test_without_an_option_each_has_its_value() -> None:
    config = MkDocsConfig()
    config.extra = {}
    assert read_options(config) == Options(edit=None, plain=None, serve="en")


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
    live: tuple[Path, str], browser: Any
) -> None:
    book, address = live
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
