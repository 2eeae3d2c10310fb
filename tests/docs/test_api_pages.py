"""The API's index lists the files of each folder's page, and each of them exists."""

import re

import pytest

from tests.docs.page import ROOT

API = ROOT / "docs" / "reference" / "api"
SHARDLAB = ROOT / "tools" / "shardlab"
ROW = re.compile(r"^\| \[[^]]*\]\((\w+(?:\.es)?\.md)\) \| `(\w+)` \| (.*) \|$", re.M)


@pytest.mark.parametrize("language", ["", ".es"])
def test_the_index_lists_the_files_of_each_folder_s_page(language: str) -> None:
    rows = ROW.findall((API / f"index{language}.md").read_text("utf-8"))
    pages = {page for page, _, _ in rows}
    assert pages == {
        path.name
        for path in API.glob("*.md")
        if path.name.endswith(".es.md") == bool(language) and not path.name.startswith("index")
    }
    for page, folder, files in rows:
        modules = re.findall(
            rf"^    ::: shardlab\.{folder}\.(\S+)$", (API / page).read_text(), re.M
        )
        assert re.findall(r"`([\w.]+)`", files) == modules, page
        for module in modules:
            assert (SHARDLAB / folder / f"{module.replace('.', '/')}.py").is_file(), module
