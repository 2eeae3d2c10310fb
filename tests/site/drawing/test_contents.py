"""A page is made again when its text or what its figures show has changed, and else not."""

from __future__ import annotations

import os
from pathlib import Path

from sitelab.contents import Contents, Source

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><text>{}</text></svg>'
PAGE = '<p><img alt="A" src="../assets/figures/a.svg"></p>'


def test_a_figure_that_changed_is_shown_and_an_unchanged_page_is_kept(tmp_path: Path) -> None:
    figure = tmp_path / "docs/assets/figures/a.svg"
    figure.parent.mkdir(parents=True)
    figure.write_text(SVG.format("first"))
    contents, source = Contents(), Source(PAGE, "a/", "en", {}, [], judged=False)
    contents.begin_build(tmp_path)
    first = contents.get(source, tmp_path)
    assert "first" in first.html
    contents.begin_build(tmp_path)
    assert contents.get(source, tmp_path) is first
    figure.write_text(SVG.format("second"))
    os.utime(figure, ns=(figure.stat().st_mtime_ns + 1,) * 2)  # whatever the clock's step
    contents.begin_build(tmp_path)
    assert "second" in contents.get(source, tmp_path).html
