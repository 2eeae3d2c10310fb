"""The plain tree: finished pages that a generator without our hooks can build."""

from __future__ import annotations

import json

import pytest

from sitelab.plain_tree import _from_source, to_markdown
from tests.site.scratch_site import BuiltSite


def test_a_page_of_the_tree_is_finished_and_its_links_start_from_its_file(
    strict_site: BuiltSite,
) -> None:
    tree = strict_site.scratch.root / "tree"
    front = (tree / "en/docs/index.md").read_text()
    assert front.startswith('---\ntitle: "Scratch book"\n---\n\n# Scratch book {#scratch-book}\n')
    assert 'href="experiments/01-scratch/note.md"' in front
    note = (tree / "en/docs/experiments/01-scratch/note.md").read_text()
    assert "citation" in note
    assert "```" not in note
    assert (tree / "es/docs/index.md").read_text().startswith('---\ntitle: "Cuaderno"')
    settings = json.loads((tree / "en/mkdocs.yml").read_text())
    assert settings["nav"][0] == {"Scratch book": "index.md"}
    assert not {"plugins", "hooks"} & settings.keys()
    for style in settings["extra_css"]:
        assert (tree / "en/docs" / style).is_file()


def test_headings_in_html_stay_where_they_are_folded() -> None:
    folded = '<details><summary>a</summary><h3 id="b">c</h3></details>'
    assert to_markdown(f'<h1 id="t">T</h1>{folded}text') == f"# T {{#t}}\n\n{folded}\n\ntext\n"


@pytest.mark.parametrize(
    ("address", "url", "expected"),
    [
        ("../../reference/glossary/#a", "theory/01/", "../reference/glossary.md#a"),
        ("#a", "theory/01/", "#a"),
        ("https://example.org/", "theory/01/", "https://example.org/"),
        ("../../assets/x.svg", "theory/01/", "../assets/x.svg"),
        ("theory/01/", "", "theory/01.md"),
        ("../..", "theory/01/", "../index.md"),
    ],
)
def test_links_lead_from_file_to_file(address: str, url: str, expected: str) -> None:
    assert _from_source(address, url) == expected
