"""Notes and solutions appear in the site at their own paths, with links that work."""

from __future__ import annotations

from pathlib import Path

import pytest

from notelab.cache import DiskCache, cache_key
from sitelab.pages import workbook_pages
from sitelab.pages.repository_links import rewrite_link
from tests.notelab.scratch import Scratch
from tests.site.scratch_site import build, make_site


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "reference/notes.md", "reference/notes.md"),
        ("index.md", "../experiments/lab/note.md#a", "experiments/lab/note.md#a"),
        ("labs/01.md", "../../experiments/lab/note.md", "../experiments/lab/note.md"),
        ("experiments/lab/note.md", "../../docs/reference/notes.md", "../../reference/notes.md"),
        ("experiments/lab/note.md", "../other/RESULTS.md#row", "../other/RESULTS.md#row"),
        ("solutions/ref.md", "../experiments/lab/note.md", "../experiments/lab/note.md"),
        ("theory/04.md", "../../tools/shardlab/a/b.py", "../tools/shardlab/a/b.py"),
        ("index.md", "../tools/notelab/cli.py", "../tools/notelab/cli.py"),
        ("index.md", "#here", "#here"),
        ("index.md", "https://example.org/a", "https://example.org/a"),
        ("index.md", "../../../etc/passwd", "../../../etc/passwd"),
        ("index.md", "../README.md", "../README.md"),
    ],
)
def test_links_of_a_code_host_lead_to_the_same_page_in_the_site(page, link, expected) -> None:
    assert rewrite_link(link, page) == expected


def test_caches_local_results_and_links_elsewhere_are_no_pages(tmp_path: Path) -> None:
    lab = tmp_path / "experiments" / "lab"
    for name in ("note.md", "results/local/run.json", "__pycache__/a.pyc", ".hidden.md", "a.csv"):
        (lab / name).parent.mkdir(parents=True, exist_ok=True)
        (lab / name).write_text("x")
    (tmp_path / "secret.md").write_text("x")
    (lab / "link.md").symlink_to(tmp_path / "secret.md")
    assert sorted(workbook_pages.find_files(tmp_path)) == [
        "experiments/lab/a.csv",
        "experiments/lab/note.md",
    ]


NAV = ["index.md", {"Labs": [{"One": "experiments/one/note.md"}]}, {"Away": "https://a.invalid/x"}]


def test_only_a_lab_without_any_page_in_the_nav_is_outside_it() -> None:
    pages = ["note.md", "more.md", "lab.toml"]
    uris = [f"experiments/{lab}/{name}" for lab in ("one", "two") for name in pages]
    uris += ["experiments/three/lab.toml", "experiments/readme.md", "solutions/one/ref.md"]
    assert workbook_pages.find_labs_outside_nav(uris, NAV) == {"experiments/two"}
    assert workbook_pages.find_labs_outside_nav(uris, None) == set()


def test_a_readers_own_lab_in_one_language_does_not_stop_a_strict_build(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    book = make_site(scratch)
    lab = book / "experiments" / "my-reading"
    lab.mkdir()
    (lab / "note.md").write_text("# Mine\n\nSee [the other](../01-scratch/note.md).\n")
    built = build(scratch, "--strict")
    assert built.returncode == 0, built.stderr
    assert "experiments/my-reading is not in mkdocs.yml's nav: left out" in built.stderr
    assert not (book / "site/experiments/my-reading").exists()
    text = (book / "experiments/01-scratch/note.md").read_text("utf-8")
    cache_file = DiskCache(scratch.root / "cache/memo").file_for(book)
    # The next build reads no page that has not changed.
    assert cache_file.get("note", cache_key(text))
    (book / "experiments/01-scratch/more.md").write_text("# More\n")
    built = build(scratch, "--strict")
    assert built.returncode != 0
    faults = [line for line in built.stderr.split("\n") if "INFO" not in line]
    assert any("01-scratch/more.md" in line for line in faults), built.stderr
    assert not any("my-reading" in line for line in faults), built.stderr
