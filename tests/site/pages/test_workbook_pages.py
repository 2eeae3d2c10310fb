"""Notes and solutions appear in the site at their own paths, with links that work."""

from __future__ import annotations

from pathlib import Path

from notelab.cache import DiskCache, cache_key
from sitelab.pages import workbook_pages
from tests.notelab.scratch import Scratch
from tests.site.scratch_site import build, make_site

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
