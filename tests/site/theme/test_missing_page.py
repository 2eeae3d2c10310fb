"""404.html: what a host gives for an address without a page, in whatever folder the site is."""

from __future__ import annotations

import re
import shutil
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.site.reader import Reader

SOURCE = Path(__file__).parents[3] / "tools/sitelab/theme/templates/404.html"
LEADS = """([home, address]) =>
  document.querySelector(`a[data-home="${home}"]`).href === address"""
ADDRESSES = ("nowhere", "labs/nowhere/", "es/labs/00/nowhere/at/all.html")


class Host(SimpleHTTPRequestHandler):
    """Serves the project's 404.html for missing files, as hosts of sites do."""

    def __init__(self, *args: Any, project: Path, **settings: Any) -> None:
        self._project = project
        super().__init__(*args, **settings)

    def send_error(self, code: int, *_: Any, **__: Any) -> None:
        body = (self._project / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module", params=["", "project/"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a small site: at its host's root, and in a folder of another site's host."""
    root = tmp_path_factory.mktemp("host")
    project = root / request.param
    (project / "es").mkdir(parents=True)
    for folder, text in ((root, "the host"), (project, "home"), (project / "es", "portada")):
        (folder / "index.html").write_text(f"<!doctype html><title>{text}</title>{text}", "utf-8")
    (project / "404.html").write_text(SOURCE.read_text("utf-8"), "utf-8")
    handler = partial(Host, directory=str(root), project=project)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/{request.param}"
        server.shutdown()
    shutil.rmtree(root)


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_missing_page_is_styled_and_leads_home_in_both_languages(
    browser: Any, host: str, address: str
) -> None:
    reader = Reader(browser, host, viewport={"width": 390, "height": 844})
    page = reader.read(address)
    for language, title in (("", "home"), ("es/", "portada")):
        link = page.locator(f"a[data-home='{language}']")
        reader.until(LEADS, [language, host + language])
        link.click()
        page.wait_for_url(host + language)
        assert page.title() == title
        reader.read(address)
    assert page.evaluate("getComputedStyle(document.body).maxWidth") != "none", "its style applies"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert (
        page.evaluate("performance.getEntriesByType('resource').length") <= address.count("/") + 3
    )
    assert not [fault for fault in reader.wrong if "404" not in fault], reader.wrong
    reader.close()


@pytest.mark.parametrize(("address", "part"), [("theory/99/x", ""), ("es/nada/", "es/")])
def test_a_missing_page_leads_to_one_with_search_and_menu_in_its_language(
    browser: Any, site: Path, tmp_path: Path, address: str, part: str
) -> None:
    (tmp_path / "project").symlink_to(site)
    handler = partial(Host, directory=str(tmp_path), project=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        host = f"http://127.0.0.1:{server.server_address[1]}/project/"
        reader = Reader(browser, host, viewport={"width": 1440, "height": 900})
        page = reader.page
        page.goto(host + address)
        page.wait_for_url(f"{host}{part}not-found/")
        assert page.locator(".md-search__input, .md-tabs__link >> nth=0").first.is_visible()
        for front in (host, f"{host}es/"):
            links = page.locator("article a").evaluate_all("all => all.map(link => link.href)")
            assert front in links
        reader.close()
        server.shutdown()


@pytest.mark.parametrize("host", [""], indirect=True)
def test_a_missing_page_is_accessible_in_both_palettes(browser: Any, host: str, axe: str) -> None:
    reader = Reader(browser, host, viewport={"width": 1440, "height": 900})
    for scheme in ("light", "dark"):
        reader.page.emulate_media(color_scheme=scheme)
        page = reader.read(ADDRESSES[0])
        page.evaluate(axe)
        violations = page.evaluate("async () => (await axe.run()).violations.map(one => one.id)")
        assert violations == [], scheme
    reader.close()


def test_the_sites_missing_page_asks_for_no_file_and_speaks_both_languages(site: Path) -> None:
    html = (site / "404.html").read_text("utf-8")
    assert html == SOURCE.read_text("utf-8").rstrip("\n")
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in html
    assert not re.search(r"\ssrc=|<link\b|url\(|@import", html)
    assert set(re.findall(r'href="([^"]*)"', html)) == {"./"}
    assert '<html lang="en">' in html and '<section lang="es">' in html
    assert "unsafe-inline" not in html
