"""A note that tries to run something on the site: nothing runs, whatever it tries.

The note's script would set `canary` on the window, open a dialog or ask another host; the reader
watches for all three, opens every card and searches for the note's title.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pages.screenshots import serving
from tests.notelab.scratch import Scratch, commit_all
from tests.site.reader import Reader
from tests.site.scratch_site import build, make_site

RUN = "window.canary=1;alert(1)"
EVIL = f"<script>{RUN}</script><img src=x onerror='{RUN}'>"
SOURCE = f'''"""</code></pre>{EVIL}"""


def cited(quiet="{EVIL}"):
    return quiet
'''
NOTE = f"""---
title: "Hostile {EVIL.replace('"', "'")}"
description: '"><script>window.canary=1</script>'
template: 404.html
hide: ["{EVIL}"]
commit:
  up: COMMIT
---

# Hostile {EVIL} {{: data-toc-label="{EVIL}" onclick="{RUN}" }}

## Also `{EVIL}` in code {{: #__config onmouseover="{RUN}" }}

<div id="__config">{{"base": "https://example.invalid", "features": [], "search": "x.js"}}</div>

- **One <svg onload="{RUN}"></svg>.** The default `quiet` at `pkg/evil.py:L4-L5` and
  `pkg/evil{EVIL}.py:L1`, [a link](javascript:{RUN}), [another](JaVaScRiPt:{RUN} "{EVIL}"),
  [data](data:text/html,<script>{RUN}</script>), <a href="javascript:{RUN}">raw</a>,
  ![x](https://example.invalid/x.png), ![y](x.png){{: onerror="{RUN}" }},
  <iframe srcdoc="{EVIL}"></iframe><object data="javascript:{RUN}"></object>
  <style>@import "https://example.invalid/x.css";</style><base href="https://example.invalid/">
  <meta http-equiv="refresh" content="0;url=https://example.invalid/">
  <form action="javascript:{RUN}"><button autofocus onfocus="{RUN}">x</button></form>

<details open ontoggle="{RUN}"><summary>{EVIL}</summary>x</details>

??? question "{EVIL} recall"
    The answer: {EVIL} <a href="javascript:{RUN}">answer</a>

```mermaid
%%{{init: {{"securityLevel": "loose", "themeCSS": "*{{background:url(//example.invalid)}}"}}}}%%
flowchart LR
  A["{EVIL.replace('"', "'")}"] --> B["<a href='javascript:{RUN}'>x</a>"]
  click A href "javascript:{RUN}"
  click B call alert("1")
```

$\\href{{javascript:{RUN}}}{{x}}$ and $\\htmlData{{x=y}}{{x}}$ and $\\text{{{EVIL}}}$
and $\\includegraphics{{https://example.invalid/x.png}}$

<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=x onerror={RUN}&gt;">
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site with the hostile note, in both languages."""
    scratch = Scratch(tmp_path_factory.mktemp("hostile"))
    (scratch.upstream / "pkg/evil.py").write_text(SOURCE)
    commit = commit_all(scratch.upstream, EVIL)
    scratch.write("up-sha.txt", f"{commit}\n")
    for name in ("note.md", "note.es.md"):
        scratch.write(name, NOTE.replace("COMMIT", commit[:12]))
    scratch.lock()
    solutions = make_site(scratch) / "solutions"
    solutions.mkdir()
    for suffix in (".md", ".es.md"):  # no title but the heading's; none but the file's name
        heading = f"# Evil {escape(f'</title>{EVIL}')}"
        solutions.joinpath(f"heading{suffix}").write_text(f"{heading}\n\nEvil recall heading.\n")
        name = f"<img src=x onerror={RUN}>"
        solutions.joinpath(f"{name}{suffix}").write_text("Evil recall name.\n")
    built = build(scratch)
    assert built.returncode == 0, built.stderr
    assert "a formula that can't be drawn" in built.stderr
    return scratch.book / "site"


@pytest.fixture(scope="module")
def watched(hostile: Path, browser: Any) -> Iterator[tuple[Reader, list[str]]]:
    with serving(hostile) as address:
        reader = Reader(browser, address, first_visit=True)
        dialogs: list[str] = []

        def opened(dialog: Any) -> None:
            dialogs.append(dialog.message)
            dialog.dismiss()

        reader.page.on("dialog", opened)
        yield reader, dialogs
        reader.close()


@pytest.mark.ci
@pytest.mark.parametrize("language", ["", "es/"])
@pytest.mark.parametrize("name", ["heading", f"<img src=x onerror={RUN}>"])
def test_nothing_of_a_title_runs(
    watched: tuple[Reader, list[str]], language: str, name: str
) -> None:
    reader, dialogs = watched
    page = reader.read(f"{language}solutions/{quote(name)}/")
    page.locator(".md-content h1").wait_for()
    assert "<" in page.title()
    quiet(reader, dialogs)


@pytest.mark.parametrize("language", ["", pytest.param("es/", marks=pytest.mark.ci)])
def test_nothing_of_a_hostile_note_runs(watched: tuple[Reader, list[str]], language: str) -> None:
    reader, dialogs = watched
    page = reader.read(f"{language}experiments/01-scratch/note/")
    reader.wait_for_diagrams()
    for card in page.locator("details").all():
        card.evaluate("card => { card.open = !card.open }")
    for link in page.locator("a.citation[data-card]").all():
        link.focus()
        page.locator(".citation-card").wait_for()
        assert "window.canary" in page.locator(".citation-card").inner_text()
    for link in page.locator(".md-content a").all():
        assert "javascript:" not in (link.get_attribute("href") or "").lower()
    reader.search("recall")
    assert "recall" in page.locator(".md-search-result__list").inner_text()
    quiet(reader, dialogs)


def test_a_hostile_title_is_text_in_other_pages_too(
    watched: tuple[Reader, list[str]],
) -> None:
    reader, dialogs = watched
    page = reader.read("")
    assert "Hostile <script>" in page.locator(".md-footer__link--next").inner_text()
    quiet(reader, dialogs)


def quiet(reader: Reader, dialogs: list[str]) -> None:
    assert reader.page.evaluate("window.canary") is None
    assert not dialogs
    # A picture of this very site that isn't there is no harm, nor what the browser has refused.
    harmless = ("404", "Content Security Policy")
    assert [w for w in reader.wrong if not any(word in w for word in harmless)] == []
    handlers = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert not [a for a in reader.page.evaluate(handlers) if a.startswith("on")]
