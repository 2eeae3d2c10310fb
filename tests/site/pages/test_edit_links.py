"""A page's edit link leads to its file, wherever that lies, and asks nobody anything."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from sitelab.pages import wayfinding
from tests.site.conftest import EDIT_BASE
from tests.site.scratch_site import REPOSITORY, BuiltSite


@pytest.mark.parametrize(
    ("remote", "base"),
    [
        ("https://github.com/o/r.git", "https://github.com/o/r/edit/main/"),
        ("git@github.com:o/r", "https://github.com/o/r/edit/main/"),
        ("ssh://git@gitlab.com/g/s/r.git", "https://gitlab.com/g/s/r/-/edit/main/"),
        ("https://name:secret@codeberg.org/o/r.git", "https://codeberg.org/o/r/_edit/main/"),
        ("https://example.org/o/r.git", ""),
        ("/srv/git/r.git", ""),
        ("", ""),
    ],
)
def test_a_known_hosts_form_is_known(remote: str, base: str) -> None:
    assert wayfinding.derive_base(remote) == base


def test_each_page_names_its_own_file(strict_site: BuiltSite) -> None:
    for place, file in {
        "index.html": "docs/index.md",
        "es/index.html": "docs/index.es.md",
        "experiments/01-scratch/note/index.html": "experiments/01-scratch/note.md",
        "es/experiments/01-scratch/note/index.html": "experiments/01-scratch/note.es.md",
    }.items():
        html = (strict_site.folder / place).read_text()
        link = html.split('rel="edit"')[0].rsplit('href="', 1)[1].split('"')[0]
        assert unquote(link) == EDIT_BASE + file
        assert (strict_site.book / file).is_file()
        assert 'data-md-component="source"' not in html, "Material would ask the host's API"


def test_where_no_host_is_known_there_is_no_link(tmp_path: Path) -> None:
    assert wayfinding.find_base(tmp_path, "") == ""


@pytest.mark.parametrize(
    ("remote", "configured", "address"),
    [
        ("git@github.com:o/r.git", None, "https://github.com/o/r.git"),
        ("https://name:secret@gitlab.com/g/r", None, "https://gitlab.com/g/r"),
        ("git@github.com:o/r.git", "https://example.org/r", "https://example.org/r"),
        ("/srv/git/r.git", None, None),
        ("https://example.org/o/r.git", None, None),
    ],
)
def test_a_command_clones_from_the_address_if_it_is_known(
    tmp_path: Path, remote: str, configured: str | None, address: str | None
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text(f'[remote "origin"]\n\turl = {remote}\n')
    page = (
        "Type. <!-- address -->`REPOSITORY` is it.<!-- /address --> Go.\ngit clone REPOSITORY a\n"
    )
    named = f"Type. Go.\ngit clone {address} a\n" if address else page
    assert wayfinding.name_repository(page, tmp_path, configured) == named


@pytest.mark.parametrize("suffix", ["", ".es"])
def test_the_front_page_says_what_to_clone_if_no_address_is_known(suffix: str) -> None:
    page = (REPOSITORY / f"docs/index{suffix}.md").read_text("utf-8")
    paragraph = re.search(r"<!-- address -->(.*?)<!-- /address -->", page, re.DOTALL)
    assert paragraph and "`REPOSITORY`" in paragraph[1] and page.count("REPOSITORY") == 2
