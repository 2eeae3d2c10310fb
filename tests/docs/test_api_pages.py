"""The API's index lists the files of each folder's page: those that exist and that users import."""

import ast
import re
from collections.abc import Iterator

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


def test_what_labs_pages_and_figures_import_is_on_the_api_s_pages() -> None:
    imported = {module for source in _read_sources() for module in _find_imports(source)}
    assert "shardlab.proofs.ledger" in imported  # a page shows how to count
    listed = {
        module
        for page in API.glob("*.md")
        for module in re.findall(r"^    ::: (\S+)$", page.read_text("utf-8"), re.M)
    }
    assert imported - listed == set()


def _read_sources() -> Iterator[str]:
    """Yield the labs' programs, the figures' code and the Python that pages show."""
    for folder in ("experiments", "tools/sitelab"):
        for file in (ROOT / folder).rglob("*.py"):
            yield file.read_text("utf-8")
    for folder in ("docs", "experiments", "solutions"):
        for page in (ROOT / folder).rglob("*.md"):
            yield from re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


def _find_imports(source: str) -> Iterator[str]:
    """Yield the modules of shardlab that a source imports from; a package is none."""
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except SyntaxError:
        return  # a page may leave lines out
    for node in nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            path = ROOT / "tools" / name.replace(".", "/")
            if name.startswith("shardlab.") and path.with_suffix(".py").is_file():
                yield name
