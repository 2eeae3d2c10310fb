"""Local pages are in the menu of the served site, and in no other."""

from __future__ import annotations

import re
from pathlib import Path

from sitelab.pages import workbook_pages
from tests.notelab.scratch import Scratch
from tests.site.live_server import get, serve_live
from tests.site.scratch_site import build, make_site

LINK = re.compile(
    r'<a href="([^"]*)" class="md-nav__link[^"]*">\s*<span class="md-ellipsis">\s*(.*?)\s*</span>',
    re.DOTALL,
)


def add_local_lab(scratch: Scratch) -> Path:
    """Add a lab that mkdocs.yml doesn't list, and local results, to a scratch workbook."""
    book = make_site(scratch)
    lab = book / "experiments" / "my & reading"
    lab.mkdir()
    (lab / "note.md").write_text("# What I read\n\nSee [the other](../01-scratch/note.md).\n")
    local = book / "experiments" / "01-scratch" / "results" / "local"
    local.mkdir(parents=True)
    for name, title in {"RESULTS.md": "Measured here", "RESULTS.es.md": "Medido aquí"}.items():
        (local / name).write_text(f"# {title}\n")
    (local / "run.json").write_text("{}")
    return book


def menu(html: str) -> dict[str, str]:
    """Return the menu's pages by title."""
    return {title: address for address, title in LINK.findall(html)}


def test_a_readers_own_pages_are_in_the_menu_while_the_site_is_served(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    with serve_live(add_local_lab(scratch), only="") as address:
        place = "experiments/01-scratch/results/local/RESULTS/"  # the tab's menu is on its pages
        assert "Yours" in get(address) and "Lo tuyo" in get(f"{address}es/")
        english, castilian = get(address + place), get(f"{address}es/{place}")
        assert {"What I read", "Measured here"} <= {*menu(english)}
        assert "Medido aquí" in menu(castilian)
        assert "What I read" not in menu(castilian)  # it has no Spanish


def test_a_built_site_has_neither_the_section_nor_what_git_ignores(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    book = add_local_lab(scratch)
    built = build(scratch, "--strict")
    assert built.returncode == 0, built.stderr
    html = (book / "site" / "index.html").read_text("utf-8")
    assert "Yours" not in html and "Measured here" not in html
    assert not list((book / "site").rglob("results/local"))


def test_only_pages_are_taken_from_what_git_ignores(tmp_path: Path) -> None:
    book = add_local_lab(Scratch(tmp_path))
    files = workbook_pages.find_files(book, local=True)
    local = [uri for uri in files if "local" in uri]
    assert local == [
        f"experiments/01-scratch/results/local/{name}" for name in ("RESULTS.es.md", "RESULTS.md")
    ]
    assert workbook_pages.find_local_results(files) == {"experiments/01-scratch/results/local"}
