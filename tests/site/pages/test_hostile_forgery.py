"""A note that forges what the site made, covers it or leads away; its neighbours; its source.

Opened in a real browser under the site's policy: nothing runs, nothing is asked for, nothing is
covered, and what the site itself proved can be told from what a note only looks like.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pages.screenshots import serving
from tests.notelab.scratch import Scratch, commit_all
from tests.site.pages.test_published_files import RUNS, surround
from tests.site.reader import Reader
from tests.site.scratch_site import build, make_site

PLACE = "experiments/01-scratch/note/"
AWAY = "https://example.invalid/"
SOURCE = f"""def guard(user):
    if user:  # \u202e}} admin only {{ \u2066
        return "\x1b[8m", '{"<b>" * 50_000}'
    return None
"""
CARD = '<p class="citation-place"><b>proved.py</b></p><pre><code>as you wish</code></pre>'
DIAGRAMS = [
    '%%{init: {"theme": "none-of-these"}}%%\nflowchart LR\n  A --> B',
    '%%{init: {"themeVariables": {"primaryColor": "none"}, "theme": "base"}}%%\n'
    "flowchart LR\n  A --> B",
    f'flowchart LR\n  A["<a href=\'{AWAY}\'>x</a>"] --> B\n  click B href "{AWAY}" _blank\n'
    f'  C --> D\n  click D "{AWAY}"\n  style A position:fixed,inset:0',
    f"sequenceDiagram\n  participant A\n  link A: out @ {AWAY}\n  A->>A: x",
    f"---\nconfig:\n  kanban:\n    ticketBaseUrl: '{AWAY}#TICKET#'\n---\nkanban\n  todo[Todo]\n"
    "    a[One]@{ ticket: 'A-1' }",
    f'classDiagram\n  class A\n  link A "{AWAY}"\n  click A href "{AWAY}"',
    f'flowchart LR\n  A@{{ img: "{AWAY}x.png", label: "x", h: 60 }}',
    "flowchart LR\n  last --> one",
]
NOTE = f"""---
title: A forged card
commit:
  up: COMMIT
---

# A forged card

- **Proved.** What `guard` returns at `pkg/evil.py:L1-L3` is written there.

<div class="citation-card citation-card--open" data-mark="x" id="forged">{CARD}</div>
<a class="citation" data-card="../../../assets/x.html" id="link" href="#x"><code>a.py:1</code></a>
<div class="claims" id="claims"><span class="verdict holds" id="verdict">holds</span></div>
<div class="md-consent__overlay md-overlay md-search md-dialog" id="overlay">over</div>

Over all: $\\rule{{50em}}{{50em}}$, $\\smash{{\\rule[-25em]{{50em}}{{50em}}}}$,
$\\llap{{\\rule{{50em}}{{50em}}}}$, $\\kern-50em\\rule{{50em}}{{2em}}$,
$\\rlap{{\\raisebox{{25em}}{{\\rule{{50em}}{{50em}}}}}}$.

$$\\smash{{\\rlap{{\\rule[-25em]{{50em}}{{50em}}}}}}$$

{"".join(f"```mermaid{chr(10)}{text}{chr(10)}```{chr(10)}{chr(10)}" for text in DIAGRAMS)}
"""
# The site's own parts whose middle some other element lies over, at this place of the page.
COVERED = """() => [...document.querySelectorAll(
    ".md-header__button, .md-header__title, .md-nav__link, .md-search__input, .md-tabs__link, h1")]
  .filter(part => part.checkVisibility({visibilityProperty: true, opacityProperty: true}))
  .map(part => [part, part.getBoundingClientRect()])
  .filter(([, box]) => box.width > 1 && box.top >= 0 && box.bottom <= innerHeight)
  .filter(([part, box]) => {
    const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return !(part.contains(top) || top?.contains(part));
  }).map(([part]) => part.className + part.textContent.trim())"""
PAINTED = """() => Math.max(...[...document.querySelectorAll(".formula .katex-rule")].map(rule => {
  let box = rule.getBoundingClientRect(), seen = [box.left, box.top, box.right, box.bottom];
  for (let up = rule.parentElement; up; up = up.parentElement) {
    const style = getComputedStyle(up), at = up.getBoundingClientRect();
    if (style.clipPath === "none" && style.overflow === "visible") continue;
    seen = [Math.max(seen[0], at.left), Math.max(seen[1], at.top), Math.min(seen[2], at.right),
            Math.min(seen[3], at.bottom)];
  }
  const line = rule.closest("p, div.formula").getBoundingClientRect();
  return Math.max(line.left - seen[0], line.top - seen[1], seen[2] - line.right,
                  seen[3] - line.bottom);
}))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scratch = Scratch(tmp_path_factory.mktemp("forgery"))
    (scratch.upstream / "pkg/evil.py").write_text(SOURCE)
    commit = commit_all(scratch.upstream, "one")
    scratch.write("up-sha.txt", f"{commit}\n")
    for name in ("note.md", "note.es.md"):
        scratch.write(name, NOTE.replace("COMMIT", commit[:12]))
    scratch.lock()
    surround(make_site(scratch) / "experiments/01-scratch")
    built = build(scratch)
    assert built.returncode == 0, built.stderr
    return scratch.book / "site"


@pytest.fixture(scope="module")
def reader(site: Path, browser: Any) -> Iterator[Reader]:
    with serving(site) as address:
        reader = Reader(browser, address, first_visit=True, viewport={"width": 1440, "height": 900})
        yield reader
        reader.close()


@pytest.fixture(scope="module")
def note(reader: Reader) -> Any:
    """The forged note, opened once: its page with all its diagrams, and why requests failed."""
    refused: list[str] = []
    reader.page.on("requestfailed", lambda request: refused.append(f"{request.failure}"))
    page = reader.read(PLACE)
    drawn = reader.wait_for_diagrams()
    asked = [fault for fault in reader.wrong if "asked another host" in fault]
    return SimpleNamespace(page=page, drawn=drawn, refused=refused, asked=asked)


@pytest.fixture(autouse=True)
def nothing_ran(reader: Reader) -> Iterator[None]:
    reader.wrong.clear()
    yield
    assert reader.page.evaluate("window.canary") is None


def test_a_forged_card_is_no_card_and_the_proved_one_is(note: Any) -> None:
    page = note.page
    for name in ("forged", "link", "overlay", "claims", "verdict"):
        assert page.locator(f"#{name}").get_attribute("class") is None
        assert page.locator(f"#{name}").evaluate("e => getComputedStyle(e).position") == "static"
    page.locator("a.citation[data-card]").focus()
    card = page.locator(".citation-card")
    card.wait_for()
    assert card.is_visible() and "guard" in card.inner_text()
    for visible in ("⟨U+202E⟩", "⟨U+2066⟩", "⟨U+001B⟩[8m", "… (+"):
        assert visible in card.inner_text()
    card.evaluate("card => card.dataset.mark = 'x'")  # as a note would, if it could
    assert not card.is_visible()


def test_nothing_of_the_site_is_covered_and_no_formula_paints_beyond_its_lines(note: Any) -> None:
    page = note.page
    for formula in page.locator(".formula").all():
        formula.scroll_into_view_if_needed()
        assert page.evaluate(COVERED) == []
    assert page.locator(".formula .katex-rule").count() >= 6
    assert page.evaluate(PAINTED) <= 20  # px: half a line
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440


def test_diagrams_lead_nowhere_and_a_wrong_one_stops_none_after_it(note: Any) -> None:
    page = note.page
    wrong = page.locator("div.mermaid[data-error]").count()
    assert note.drawn + wrong == len(DIAGRAMS)
    assert page.locator("div.mermaid").last.locator("svg").count() == 1
    leads = """all => all.flatMap(e => [...e.attributes]).filter(a =>
      /href|src|action|^on/.test(a.name) && !a.value.startsWith("#")).map(a => a.value)"""
    assert page.locator("div.mermaid *").evaluate_all(leads) == []
    assert page.locator("div.mermaid a").count() == 0
    # The picture of a node never left the browser.
    assert note.refused == ["csp"] * len(note.asked)


def test_an_inline_script_does_not_run_under_the_sites_policy(reader: Reader) -> None:
    page = reader.read("")
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    scripts = policy.split("script-src")[1].split(";")[0]
    assert "unsafe" not in scripts and "sha256-" in scripts
    assert not reader.wrong
    page.evaluate("""() => {
      document.body.append(Object.assign(document.createElement("script"),
        {textContent: "window.canary = 1"}));
      document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.canary = 1'>");
    }""")
    reader.until("() => document.querySelector('img[src=x]').complete")


def test_no_neighbour_of_a_note_runs(reader: Reader) -> None:
    lab = "experiments/01-scratch/"
    for place in [f"{part}{lab}{name}" for part in ("", "es/") for name in RUNS]:
        assert reader.page.request.get(reader.served + place).status == 404, place
    page = reader.read(f"{lab}pic.svg")
    assert page.locator("text=kept").count() == 1
    assert not [w for w in reader.wrong if "404" not in w]  # it has no icon
