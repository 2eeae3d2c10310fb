"""Files next to a note are published only if their type is one that no browser runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sitelab.drawing.svg import clean_svg
from sitelab.pages import workbook_pages
from tests.notelab.scratch import git
from tests.site.scratch_site import BuiltSite

RUN = "<script>window.canary=1</script>"
HTML = f"<!doctype html><title>x</title>{RUN}"
XHTML = f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{RUN}</body></html>'
SVG = """<?xml version="1.0"?><?xml-stylesheet href="https://example.invalid/x.css"?>
<!DOCTYPE svg [<!ENTITY e "window.canary=1">]>
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
  xmlns:h="http://www.w3.org/1999/xhtml" viewBox="0 0 9 9" onload="window.canary=1">
<script>&e;</script><h:script>window.canary=1</h:script>
<style>@import "//example.invalid/x";</style>
<style>* {stroke: red}</style><foreignObject><h:iframe src="javascript:alert(1)"/></foreignObject>
<a href="https://example.invalid/"><text>away</text></a><set attributeName="onclick" to="alert(1)"/>
<defs><path id="p" d="M 0 0 L 9 9" ONCLICK="alert(1)" style="fill:url(//example.invalid/x)"/></defs>
<use xlink:href="#p" x="1"/><use href="https://example.invalid/x.svg#p"/>
<image href="data:image/svg+xml,x"/><image href="data:image/png;base64,AAAA"/>
<g clip-path="url(#p)"><text>kept</text></g></svg>
"""
RUNS = {
    "tool.html": HTML, "TOOL.HTML": HTML, "tool.htm": HTML, "page.xhtml": XHTML, "data.xml": XHTML,
    "worker.js": "self.skipWaiting()", "module.mjs": "1", "paper.pdf": "%PDF-1.7", "a.shtml": HTML,
    "page.html.gz": HTML, "tool.html.py": HTML, "bare": HTML, "lab.conf": HTML, "feed.xsl": XHTML,
    "raw/index.html": HTML,
}  # fmt: skip
STAYS = ["pin.txt", "run.py", "numbers.csv", "numbers.json", "all.tar.gz", "photo.PNG", "pic.svg"]
# Endings that no browser runs, shows as a document or registers.
HARMLESS = re.compile(
    r"\.(?:css|woff2|png|jpe?g|gif|webp|avif|csv|json|toml|txt|py|zip|gz|bz2|xz|tar|tgz|zst|map|inv)"
    r"\Z|LICENSE\Z",
    re.IGNORECASE,
)
OWN = re.compile(r"(?:es/)?assets/.*|(?:.*/)?index\.html|404\.html|(?:es/)?search/[^/]*")


def surround(lab: Path) -> None:
    """Write files next to a note: files that run, files that are published, and ignored files."""
    (lab / "raw").mkdir()
    for name, content in RUNS.items():
        (lab / name).write_text(content)
    for name in STAYS:
        (lab / name).write_text(SVG if name.endswith("svg") else "x")


def find_runnable_files(site: Path) -> list[str]:
    """Return the files of a site that a browser may run, except pages and the site's assets."""
    files = [file.relative_to(site).as_posix() for file in site.rglob("*") if file.is_file()]
    return [f for f in files if not HARMLESS.search(f) and not OWN.fullmatch(f)]


def test_beside_pages_a_browser_runs_no_file_but_the_sites_own(strict_site: BuiltSite) -> None:
    site, lab = strict_site.folder, "experiments/01-scratch"
    assert {*find_runnable_files(site)} <= {f"{part}{lab}/pic.svg" for part in ("", "es/")}
    assert not (site / lab / "raw").exists()
    published = {file.name for file in (site / lab).iterdir() if file.is_file()}
    assert published == {*STAYS, "up-sha.txt"}
    picture = (site / lab / "pic.svg").read_text()
    assert "canary" not in picture and "example.invalid" not in picture


def test_the_workbooks_own_site_has_no_other_file_that_a_browser_runs(site: Path) -> None:
    for file in find_runnable_files(site):
        assert file.endswith(".svg"), file
        content = (site / file).read_bytes()
        assert clean_svg(content) == content  # or it is no cleaned picture


def test_what_git_ignores_for_whatever_reason_is_not_published(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    lab = tmp_path / "experiments/lab"
    (lab / "deep").mkdir(parents=True)
    for name in ("note.md", "token.txt", "deep/key.json", "deep/drawn.csv", "own.py"):
        (lab / name).write_text("x")
    (lab / "deep/.gitignore").write_text("*.json\n!drawn.csv\n")
    (tmp_path / ".git/info").mkdir(exist_ok=True)
    (tmp_path / ".git/info/exclude").write_text("token.*\n")
    (tmp_path / "excluded").write_text("own.py\n")
    git(tmp_path, "config", "core.excludesFile", str(tmp_path / "excluded"))
    uris = [uri.removeprefix("experiments/lab/") for uri in workbook_pages.find_files(tmp_path)]
    assert sorted(uris) == ["deep/drawn.csv", "note.md"]


def test_outside_a_checkout_the_log_says_that_nobody_knows_what_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/a.csv").write_text("x")
    with caplog.at_level("INFO"):
        assert [*workbook_pages.find_files(tmp_path)] == ["experiments/a.csv"]
    (record,) = caplog.records
    assert record.levelname == "INFO" and "git ignores" in record.getMessage()
    (tmp_path / ".git").mkdir()  # a checkout that git can't read: a strict build fails
    workbook_pages.find_files(tmp_path)
    assert caplog.records[-1].levelname == "WARNING"


def test_a_picture_keeps_what_draws_and_nothing_else() -> None:
    clean = clean_svg(SVG.encode()).decode()
    for evil in ("canary", "example.invalid", "onclick", "ONCLICK", "iframe", "set", "svg+xml"):
        assert evil not in clean, evil
    for drawn in ("M 0 0 L 9 9", 'xlink:href="#p"', "kept", "url(#p)", "stroke: red", "png;base64"):
        assert drawn in clean, drawn
    assert clean_svg(clean.encode()).decode() == clean


@pytest.mark.parametrize("content", ["", "<svg>", "<html/>", "<svg/>"])
def test_what_is_no_picture_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match=r"it is no XML|its root is"):
        clean_svg(content.encode())
