"""Notes and solutions appear in the site from where they lie, with links that lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from sitelab import workbook_pages
from sitelab.repository_links import in_site


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "reference/notes.md", "reference/notes.md"),
        ("index.md", "../experiments/lab/note.md#a", "experiments/lab/note.md#a"),
        ("labs/01.md", "../../experiments/lab/note.md", "../experiments/lab/note.md"),
        ("experiments/lab/note.md", "../../docs/reference/notes.md", "../../reference/notes.md"),
        ("experiments/lab/note.md", "../other/RESULTS.md#row", "../other/RESULTS.md#row"),
        ("solutions/ref.md", "../experiments/lab/note.md", "../experiments/lab/note.md"),
        ("index.md", "#here", "#here"),
        ("index.md", "https://example.org/a", "https://example.org/a"),
        ("index.md", "../../../etc/passwd", "../../../etc/passwd"),
        ("index.md", "../README.md", "../README.md"),
    ],
)
def test_links_of_a_code_host_lead_to_the_same_page_in_the_site(page, link, expected) -> None:
    assert in_site(link, page) == expected


def test_caches_local_results_and_links_elsewhere_are_no_pages(tmp_path: Path) -> None:
    lab = tmp_path / "experiments" / "lab"
    for name in ("note.md", "results/local/run.json", "__pycache__/a.pyc", ".hidden.md", "a.toml"):
        (lab / name).parent.mkdir(parents=True, exist_ok=True)
        (lab / name).write_text("x")
    (tmp_path / "secret.md").write_text("x")
    (lab / "link.md").symlink_to(tmp_path / "secret.md")
    assert sorted(workbook_pages.found(tmp_path)) == [
        "experiments/lab/a.toml",
        "experiments/lab/note.md",
    ]
