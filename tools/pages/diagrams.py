"""The site's diagrams, drawn by mermaid in chromium: tools/sitelab/drawing/drawings.json.

    python -m pages diagrams --record       draws each diagram of the workbook that has no drawing
    python -m pages diagrams --record all   draws all again, after mermaid has changed

A drawing has no colours of its own: docs/assets/stylesheets/diagrams.css gives them. Letters are
measured in the font of the machine that draws, so that of the reader should not be wider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from notelab.mermaid import BUNDLE
from pages.blocks import ROOT, PageError
from sitelab.drawing.clean_svg import clean_svg
from sitelab.drawing.diagrams import DRAWINGS, key_of

WIDTHS = {"flowchart": {"any": 0}, "gantt": {"wide": 700, "narrow": 340}}
# What diagrams.css colours.
CLASSES = {
    *("node", "cluster", "cluster-label", "edgeLabel", "background", "flowchart-link"),
    *("edge-pattern-dotted", "arrowMarkerPath", "own", "sent", "partial", "rank0", "rank1"),
    *(
        "grid",
        "tick",
        "domain",
        "section",
        "section1",
        "task",
        "box",
        "task0",
        "task1",
        "milestone",
    ),
    *("taskText", "taskTextOutsideRight", "taskTextOutsideLeft", "titleText", "sectionTitle"),
}
DROPPED = {"style", "id", "role", "transform-origin", "fill", "stroke", "font-family", "opacity"}
LONGEST = 1500  # letters of a path; longer is a box with round ends, which mermaid draws in pieces
_FENCE = re.compile(r"^(`{3,})mermaid\n(.*?)^\1$|^(`{4,}).*?^\3$", re.MULTILINE | re.DOTALL)
_SVG = "{http://www.w3.org/2000/svg}"
_NUMBER = re.compile(r"-?\d+\.\d+")
_DRAW = """async ([text, width]) => {
  mermaid.initialize({
    startOnLoad: false, securityLevel: "strict", suppressErrorRendering: true, theme: "neutral",
    htmlLabels: false, fontFamily: "DejaVu Sans, sans-serif",
    flowchart: { htmlLabels: false, nodeSpacing: 28, rankSpacing: 32, padding: 10,
      wrappingWidth: 170, subGraphTitleMargin: { top: 4, bottom: 14 } },
    gantt: { useWidth: width || undefined, fontSize: 12, sectionFontSize: 12,
      leftPadding: width < 500 ? 94 : 110, rightPadding: 8 },
  });
  return (await mermaid.render("drawing", text)).svg;
}"""


def list_sources(root: Path = ROOT) -> list[str]:
    """Return the text of each diagram of the workbook's pages; an example of one is none."""
    pages = [page for folder in ("docs", "experiments", "solutions")
             for page in sorted((root / folder).rglob("*.md"))]  # fmt: skip
    texts = (match[2] for page in pages for match in _FENCE.finditer(page.read_text("utf-8")))
    return list(dict.fromkeys(text for text in texts if text and "…\n" not in text))


def render() -> Iterator[tuple[Path, str]]:
    """Yield the file of drawings, without those that no page shows.

    Raises:
        PageError: a diagram has no drawing.
    """
    drawings, wanted = json.loads(DRAWINGS.read_text("utf-8")), list_sources()
    if missing := [text for text in wanted if key_of(text) not in drawings]:
        raise PageError(f"no drawing of {missing[0]!r}: run `python -m pages diagrams --record`")
    yield DRAWINGS, _format({key_of(text): drawings[key_of(text)] for text in wanted})


def record(which: str = "new") -> None:
    """Draw the diagrams that have no drawing, or `all`."""
    from playwright.sync_api import sync_playwright

    kept = json.loads(DRAWINGS.read_text("utf-8")) if DRAWINGS.is_file() and which != "all" else {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium")
        page = browser.new_page()
        page.add_script_tag(path=str(BUNDLE))
        for text in list_sources():
            if key_of(text) not in kept:
                kind = "gantt" if re.match(r"(%%.*\n)*gantt\b", text) else "flowchart"
                kept[key_of(text)] = {
                    width: simplify(page.evaluate(_DRAW, [text, pixels]), key_of(text) + width)
                    for width, pixels in WIDTHS[kind].items()
                }
        browser.close()
    DRAWINGS.write_text(_format(kept), "utf-8")


def _format(drawings: Mapping[str, Any]) -> str:
    return json.dumps(dict(sorted(drawings.items())), ensure_ascii=False, indent=0) + "\n"


def simplify(svg: str, name: str) -> str:
    """Return mermaid's picture with what draws alone: shapes, words and the classes of both."""
    root = ElementTree.fromstring(clean_svg(svg.replace("<br>", "<br/>").encode()))  # noqa: S314
    used = set(re.findall(r'marker-(?:start|end)="url\(#([^)]*)\)"', svg))
    for parent in list(root.iter()):
        for child in list(parent):
            tag = child.tag.removeprefix(_SVG)
            words = "".join(child.itertext()).strip()
            idle = {
                "marker": child.get("id") not in used, "g": not len(child),
                "text": not words, "rect": "width" not in child.attrib,
            }  # fmt: skip
            if tag in ("style", "defs", "linearGradient") or idle.get(tag):
                parent.remove(child)
            elif tag == "tspan" and len(child):  # a line, which mermaid divides into its words
                child.text = "".join(child.itertext())
                child[:] = []
    for element in root.iter():
        _simplify_element(element, name)
    x, y, width, height = (float(part) for part in root.attrib["viewBox"].split())
    root.attrib = {
        "viewBox": f"{x} {y} {width} {height}", "width": f"{width:.0f}", "height": f"{height:.0f}",
    }  # fmt: skip
    ElementTree.register_namespace("", _SVG[1:-1])
    text = ElementTree.tostring(root, encoding="unicode")
    return _NUMBER.sub(lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), text)


def _simplify_element(element: ElementTree.Element, name: str) -> None:
    tag, path = element.tag.removeprefix(_SVG), element.get("d", "")
    if tag == "path" and len(path) > LONGEST:
        numbers = [float(n) for n in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", path)]
        x, y = numbers[::2], numbers[1::2]
        width, height = max(x) - min(x), max(y) - min(y)
        element.tag = f"{_SVG}rect"
        del element.attrib["d"]
        box = {"x": min(x), "y": min(y), "width": width, "height": height, "rx": height / 2}
        element.attrib |= {key: str(value) for key, value in box.items()} | {"class": "box"}
    kept = " ".join(part for part in element.get("class", "").split() if part in CLASSES)
    for key in list(element.attrib):
        if key == "id" and tag == "marker":
            element.set("id", f"{name}-{'start' if 'Start' in element.attrib['id'] else 'end'}")
        elif key.startswith("marker-"):
            element.set(key, f"url(#{name}-{key.removeprefix('marker-')})")
        elif key in DROPPED or key.startswith(("data-", "aria-")) or (key, kept) == ("class", ""):
            del element.attrib[key]
        elif key == "class":
            element.set("class", kept)
