"""Notes and solutions are in the site at their own paths; local pages, where it is served."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mkdocs.exceptions import Abort

from notelab.cache import DiskCache, cache_key
from sitelab.pages import workbook_pages
from sitelab.pages.plain_title import make_plain
from tests.notelab.scratch import Scratch
from tests.site.scratch_site import BuiltSite, add_local_lab, build, make_site
from tests.site.serving import get, serve_live

KERNEL = "../../tools/shardlab/axis.py"


def test_links_of_a_code_host_lead_to_the_same_page_in_the_site(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    book = make_site(scratch)
    scratch.write("plot.png", "no picture")
    for suffix in ("", ".es"):
        note = scratch.read(f"note{suffix}.md")
        links = f"[front](../../docs/index{suffix}.md) [plot](plot.png) [code]({KERNEL})"
        scratch.write(f"note{suffix}.md", f"{note}\n{links}\n")
    (book / "tools/shardlab").mkdir(parents=True)
    (book / "tools/shardlab/axis.py").write_text("pass\n")
    (book / "CHANGELOG.md").write_text("# Changes\n\n[front](docs/index.md)\n")
    assert build(scratch).returncode == 0
    for language in ("", "es/"):
        site, note = book / "site" / language, "experiments/01-scratch/note/"
        assert f'<a href="{note}">' in (site / "index.html").read_text()
        html = (site / note / "index.html").read_text()
        assert '<a href="../../../">front</a>' in html
        plot = "../plot.png" if not language else "../../../../experiments/01-scratch/plot.png"
        assert f'<a href="{plot}">plot</a>' in html
        steps = "../" * (4 if language else 3)
        assert f'<a href="{steps}tools/shardlab/axis.py">code</a>' in html
    assert '<a href="../">front</a>' in (book / "site/CHANGELOG/index.html").read_text()


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


def test_a_readers_own_lab_in_one_language_is_left_out_of_a_strict_build(
    strict_site: BuiltSite,
) -> None:
    assert "experiments/my & reading is not in mkdocs.yml's nav: left out" in strict_site.output
    assert not (strict_site.folder / "experiments/my & reading").exists()
    text = (strict_site.book / "experiments/01-scratch/note.md").read_text("utf-8")
    cache_file = DiskCache(strict_site.scratch.root / "cache/memo").file_for(strict_site.book)
    # The next build reads no page that has not changed.
    assert cache_file.get("note", cache_key(text))


def test_a_page_of_the_nav_without_its_spanish_fails_a_strict_build(faulty_site: BuiltSite) -> None:
    warnings = [line for line in faulty_site.output.split("\n") if "WARNING" in line]
    for page in ("more", "note"):
        lab = "experiments/01-scratch"
        assert any(f"{lab}/{page}.md has no page in es: write" in line for line in warnings)
    assert not any("my & reading" in line for line in warnings), faulty_site.output
    assert not (faulty_site.folder / "es/experiments/01-scratch/note/index.html").exists()


LINK = re.compile(
    r'<a href="([^"]*)" class="md-nav__link[^"]*">\s*<span class="md-ellipsis">\s*(.*?)\s*</span>',
    re.DOTALL,
)


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


def test_a_built_site_has_neither_the_section_nor_what_git_ignores(strict_site: BuiltSite) -> None:
    html = (strict_site.folder / "index.html").read_text("utf-8")
    assert "Yours" not in html and "Measured here" not in html
    assert not list(strict_site.folder.rglob("results/local"))


def test_only_pages_are_taken_from_what_git_ignores(tmp_path: Path) -> None:
    book = add_local_lab(Scratch(tmp_path))
    files = workbook_pages.find_files(book, local=True)
    local = [uri for uri in files if "local" in uri]
    assert local == [
        f"experiments/01-scratch/results/local/{name}" for name in ("RESULTS.es.md", "RESULTS.md")
    ]
    assert workbook_pages.find_local_results(files) == {"experiments/01-scratch/results/local"}


def test_a_misspelt_figure_or_formula_is_named_by_page_and_line(faulty_site: BuiltSite) -> None:
    assert "Traceback" not in faulty_site.output
    for page in ("wrong.md", "wrong.es.md"):
        for line, words in {7: "no figure shardng", 9: "no figure 'memry'", 11: "formula"}.items():
            at = f"docs/{page}:{line}: "
            (warning,) = [text for text in faulty_site.output.splitlines() if at in text]
            assert words in warning
    for place in ("wrong/#no-such-section", "es/wrong/#no-such-section"):
        assert f"{place} has keywords in `sections`" in faulty_site.output


def test_keywords_that_are_no_list_end_the_build() -> None:
    page: Any = SimpleNamespace(
        title="A page", meta={"tags": "one"}, file=SimpleNamespace(src_uri="docs/page.md")
    )
    with pytest.raises(Abort, match=r"docs/page\.md, front matter: Expected `array`"):
        make_plain(page)
