"""Where a lab asks for a prediction, the reference machine's results are folded."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page import ROOT

LABS = sorted((ROOT / "docs/labs").glob("*.md"))
COSTS = [path for path in LABS if path.name.startswith("02-")]
PREDICTION = re.compile(r"\*Predi(?:ct|ce)\b")
ROW = re.compile(r"\]\(\S*?(?:\bRESULTS(?:\.es)?\.md|\bmeasured/[\w./-]*)#([\w-]+)\)")
FENCE = re.compile(r" *```")


def lines_of(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line that isn't code, and whether a fold that starts closed holds it."""
    code = hint = False
    details = 0
    for line in text.splitlines():
        if FENCE.match(line):
            code = not code
        if code:
            continue
        details += len(re.findall(r"<details(?![^>]* open)[^>]*>", line))
        if re.match(r"\?\?\?(?!\+)", line):
            hint = True
        elif line.strip() and not line.startswith("    "):
            hint = False
        yield line, hint or details > 0
        if details and "</details>" in line:
            details -= 1


def sections_with_predictions(text: str) -> Iterator[list[tuple[str, bool]]]:
    """Yield the lines from a prediction to the next heading, one list a prediction."""
    section: list[tuple[str, bool]] | None = None
    for line, folded in lines_of(text):
        if line.startswith("#") or PREDICTION.search(line):
            if section is not None:
                yield section
            section = [] if PREDICTION.search(line) else None
        if section is not None:
            section.append((line, folded))
    if section is not None:
        yield section


def rows(lines: list[tuple[str, bool]], *, folded: bool) -> list[str]:
    """Return the anchors of the result rows that stand inside folds, or outside."""
    return [row for line, inside in lines if inside is folded for row in ROW.findall(line)]


def name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", LABS, ids=name)
def test_no_result_is_open_between_a_prediction_and_the_next_heading(path: Path) -> None:
    for section in sections_with_predictions(path.read_text("utf-8")):
        assert rows(section, folded=False) == [], f"fold it (`??? example`), after {section[0][0]}"


@pytest.mark.parametrize("path", LABS, ids=name)
def test_a_lab_with_predictions_shows_only_counted_rows_outside_folds(path: Path) -> None:
    text = path.read_text("utf-8")
    if PREDICTION.search(text):  # a count is the same on every machine, and spoils nothing
        open_rows = rows(list(lines_of(text)), folded=False)
        assert [row for row in open_rows if not row.startswith("count-")] == []


@pytest.mark.parametrize("path", COSTS, ids=name)
def test_each_prediction_of_lab_02_is_followed_by_a_folded_result(path: Path) -> None:
    sections = list(sections_with_predictions(path.read_text("utf-8")))
    assert len(sections) >= 4
    assert all(rows(section, folded=True) for section in sections)


def test_a_hint_that_starts_open_is_no_fold() -> None:
    link = "[1](RESULTS.md#a)"
    folded = [f'??? tip "A"\n\n    {link}\n', f"<details>\n{link}\n</details>\n"]
    shown = [f'???+ tip "A"\n\n    {link}\n', f"<details open>\n{link}\n</details>\n"]
    for text in folded:
        assert rows(list(lines_of(f"{text}\nafter\n")), folded=True) == ["a"]
        assert rows(list(lines_of(f"{text}\n[2](RESULTS.es.md#b)\n")), folded=False) == ["b"]
    for text in [*shown, link, f"a\n{link}\n", "[1](../../docs/measured/pair.md#a)"]:
        assert rows(list(lines_of(text)), folded=False) == ["a"]
