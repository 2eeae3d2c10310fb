"""Pages fit without scripts and at 200 % zoom, and the site works below a path of its host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pages.screenshots import serving
from tests.site.reader import OpenReader, Reader

PAGES = [
    "",
    *(
        pytest.param(address, marks=pytest.mark.ci)
        for address in (
            "es/theory/03-sharded-data-parallelism/",
            "cards/",
            "experiments/35-allreduce-costs/CLAIMS/",
        )
    ),
]
READERS = {
    "without-scripts": {"viewport": {"width": 390, "height": 844}, "java_script_enabled": False},
    "zoom": {"viewport": {"width": 720, "height": 450}, "device_scale_factor": 2},
}


@pytest.mark.parametrize("settings", READERS.values(), ids=READERS)
@pytest.mark.parametrize("address", PAGES)
def test_a_page_fits_its_window(
    open_reader: OpenReader, address: str, settings: dict[str, Any]
) -> None:
    page = open_reader(**settings).read(address)
    width = settings["viewport"]["width"]
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator(".md-content p").first.is_visible()


def test_without_scripts_no_button_waits_for_one(open_reader: OpenReader) -> None:
    page = open_reader(**READERS["without-scripts"]).read("theory/01-collectives/")
    controls = page.locator(".md-content :is(button, input, select)").all()
    assert [control for control in controls if control.is_visible()] == []


@pytest.mark.parametrize("address", PAGES)
def test_a_page_works_below_a_path(browser: Any, site: Path, tmp_path: Path, address: str) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some/prefix").symlink_to(site)
    with serving(tmp_path) as host:
        reader = Reader(browser, f"{host}some/prefix/", viewport={"width": 1440, "height": 900})
        page = reader.read(address)
        links = page.locator(".md-content a").evaluate_all("all => all.map(link => link.href)")
        own = [link for link in links if link.startswith(host)]
        assert own
        assert all(link.startswith(reader.served) for link in own)
        assert reader.wrong == []
        reader.close()
