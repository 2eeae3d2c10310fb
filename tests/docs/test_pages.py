"""Each page, in both languages, is held to all checks; a failure names page, line and check."""

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs import lab_checks, page_checks
from tests.docs.page import ROOT, list_pages, path_of

CHECKS = (*page_checks.CHECKS, *lab_checks.CHECKS)
PAGES = list_pages()


def find_faults(page: Path) -> list[str]:
    """Return what is wrong with a page, a line each."""
    text = page.read_text("utf-8")
    return [
        f"{page.name}:{line}: {check.__name__}: {fault}"
        for check in CHECKS
        for line, fault in check(page, text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_a_page_has_the_form_of_all_pages(page: Path) -> None:
    faults = find_faults(page)
    assert not faults, "\n".join(faults)


def list_spanish(words: dict[str, Any], spanish: bool = False) -> Iterator[str]:
    """Yield the Spanish texts of a table of words: all that is under `es`."""
    for name, value in words.items():
        if isinstance(value, dict):
            yield from list_spanish(value, spanish or name == "es")
        elif spanish or name == "es":
            yield from [value] if isinstance(value, str) else map(str, value)


@pytest.mark.parametrize("table", sorted(ROOT.glob("tools/**/words.toml")), ids=path_of)
def test_words_of_figures_and_tables_use_the_glossarys_terms(table: Path) -> None:
    texts = list(list_spanish(tomllib.loads(table.read_text("utf-8"))))
    terms = page_checks.TERMS.items()
    assert texts
    assert [
        (text, term) for text in texts for pattern, term in terms if re.search(pattern, text, re.I)
    ] == []


def test_what_the_checks_read_is_there() -> None:
    spanish = [page for page in PAGES if page.name.endswith(".es.md")]
    assert len(spanish) > 100 and len(lab_checks.THEORY) == 8 and len(lab_checks.NOTES) > 5
    assert sum(page_checks.GENERATED.search(page.read_text("utf-8")) is not None for page in PAGES)
    quoted = [
        factor
        for page in PAGES
        for paragraph in page.read_text("utf-8").split("\n\n")
        if page_checks.SPEED.search(paragraph)
        for factor in page_checks.FACTOR.findall(paragraph)
    ]
    assert len(quoted) >= 6  # of zero bubble, three in each language


SET_UP = "[set up](../index.md#set-up)\n\n"
CLAIMS = '\n## The claims, judged\n\n<details class="answers" markdown="1">\n'
LINK = "[1](RESULTS.md#a)"
# A page's name, its text, and the check that finds the fault, at that line.
PLANTS = [
    ("a.md", "# A\n\n```\nx\n```\n", 3, "check_blocks"),
    ("a.md", "# A\n\n```console\nx\n```\n", 3, "check_blocks"),
    ("a.md", f"{SET_UP}```bash\n$ ls\n```\n", 4, "check_blocks"),
    ("a.md", f"{SET_UP}```bash\nls # all\n```\n", 4, "check_blocks"),
    ("a.md", f"{SET_UP}```bash\nls\n\n```\n", 3, "check_blocks"),
    ("a.md", f'{SET_UP}??? tip "A"\n\n    ```\n    x\n    ```\n', 5, "check_blocks"),
    ("a.md", "# A\n\n```bash\nls\n```\n", 3, "check_set_up"),
    ("a.md", f"```bash\nls\n```\n\n{SET_UP}", 1, "check_set_up"),
    ("a.md", f"\n## A\n\n{SET_UP}```bash\nls\n```\n", 6, "check_set_up"),
    ("a.md", f"{SET_UP}```bash\nmake env\nshardbook check\n```\n", 5, "check_environment"),
    ("a.md", f"{SET_UP}```bash\npytest x\n```\n", 4, "check_environment"),
    ("both.es.md", "```bash\nls FOLDER\n```\n", 1, "check_translated_commands"),
    ("both.es.md", "`git log`\n\n```bash\nls CARPETA\n```\n", 1, "check_translated_commands"),
    ("a.md", "# A\n\nsee [b](both.es.md)\n", 3, "check_links"),
    ("both.es.md", "x\n\n[b](both.md#b)\n", 3, "check_links"),
    ("both.es.md", "| a |\n|---|\n| [b](both.md) |\n", 3, "check_links"),
    ("both.es.md", '??? tip "A"\n\n    [b](both.md)\n', 3, "check_links"),
    ("both.es.md", "x\n1.250 tokens\n", 2, "check_spanish_numbers"),
    ("both.es.md", "x\n1,024 tokens\n", 2, "check_spanish_numbers"),
    ("both.es.md", "---\ntitle: a\n---\nun cubo\n", 4, "check_spanish_terms"),
    ("a.md", "# A\n\n<!-- /table -->\n", 1, "check_writer"),
    ("a.md", "<!-- written by `python -m no.thing` -->\n\n# A\n\n<!-- /a -->\n", 1, "check_writer"),
    ("a.md", "x\n\n1.23 [as](kernels-speed.md#no-such-part) fast\n", 3, "check_speed"),
    ("labs/04-a.md", f"*Predict* a\n\n{LINK}\n", 3, "check_folds"),
    ("labs/04-a.md", "*Predict* a\n\n[1](RESULTS.md#count-a)\n", 3, "check_folds"),
    ("labs/04-a.md", f"{LINK}\n\n## B\n\n*Predict* a\n", 1, "check_folds"),
    ("labs/04-a.md", f'*Predict* a\n\n???+ tip "A"\n\n    {LINK}\n', 5, "check_folds"),
    ("labs/04-a.md", f"*Predice* a\n<details open>\n{LINK}\n</details>\n", 3, "check_folds"),
    ("labs/04-a.md", "*Predict* a\n[1](../../docs/measured/pair.md#a)\n", 2, "check_folds"),
    ("labs/02-a.md", "*Predict* a\n", 1, "check_folds"),
    ("labs/03-a.md", '\n??? tip "A"\n\n    `x/y.py:L3`\n', 2, "check_reading_lab"),
    ("labs/03-a.md", f"\n`{lab_checks.CITATION.findall(lab_checks.finished_notes())[0]}`\n", 2,
     "check_reading_lab"),
    ("theory/02-a.md", "# A\n", 1, "check_theory_before_lab_03"),
    ("theory/02-a.md", "\n## The claims, judged\n\n| a |\n\n## B\n", 2,
     "check_theory_before_lab_03"),
    ("theory/02-a.md", "\n\n[n](../../experiments/35-reading-notes/n.md)\n", 3,
     "check_theory_before_lab_03"),
    ("theory/02-a.md", f"{CLAIMS}<summary>Later</summary>\n| a |\n</details>\n\n## B\n", 2,
     "check_theory_before_lab_03"),
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_check_finds_its_faults_at_their_lines(
    check: Callable[[Path, str], page_checks.Faults], tmp_path: Path
) -> None:
    for folder in ("labs", "theory"):
        (tmp_path / folder).mkdir()
    (tmp_path / "both.md").write_text("1,024\n\n```bash\nls FOLDER\n```\n")
    (tmp_path / "both.es.md").write_text("")
    plants = [plant for plant in PLANTS if plant[3] == check.__name__]
    assert plants
    for name, text, line, _ in plants:
        page = tmp_path / name
        page.write_text(text)
        assert line in [number for number, _ in check(page, text)], text
        page.write_text("")


def test_a_fold_that_starts_closed_hides_a_result() -> None:
    for folded in (f'??? tip "A"\n\n    {LINK}\n', f"<details>\n{LINK}\n</details>\n"):
        lines = list(lab_checks.list_lines(f"{folded}\n[2](RESULTS.es.md#b)\n"))
        assert [row for _, row in lab_checks.list_rows(lines, folded=True)] == ["a"]
        assert [row for _, row in lab_checks.list_rows(lines, folded=False)] == ["b"]


def test_pages_before_lab_03_give_away_at_most_two_choices_of_ten() -> None:
    notes = "".join(n.read_text("utf-8") for n in lab_checks.NOTES if ".es." not in n.name)
    finished = lab_checks.CHOICE.findall(notes)
    assert len(finished) == 10
    assert lab_checks.choices_shown(finished, lab_checks.THEORY) == []
    assert len(lab_checks.choices_shown(finished, lab_checks.BEFORE_LAB_03)) <= 2
    # The reference reading has 19 choices about the lab's 14 candidates.
    reading = (ROOT / "solutions/03-reading-ref.md").read_text("utf-8")
    groups = lab_checks.CANDIDATES.findall(reading)
    candidates = [choice for group in groups for choice in lab_checks.CHOICE.findall(group)]
    assert len(candidates) == 19
    assert lab_checks.choices_shown(candidates, lab_checks.THEORY) == []
    assert len(lab_checks.choices_shown(candidates, lab_checks.BEFORE_LAB_03)) <= 2


def test_a_choice_is_given_away_by_an_overlapping_citation_outside_of_folds(
    tmp_path: Path,
) -> None:
    choice, page = "- **A choice.** It cites\n  `a/b.py:L10-L14`.\n", tmp_path / "page.md"
    for text, given_away in (
        ("It cites `a/b.py:L14`.\n", True),
        ("It cites `a/b.py:L15`.\n", False),
        ("It cites `b.py:L14`.\n", False),
        ("<details>\n`a/b.py:L14`\n</details>\n", False),
        ('??? tip "Hint"\n\n    `a/b.py:L14`\n\n`a/b.py:L11`\n', True),
    ):
        page.write_text(text, "utf-8")
        assert lab_checks.choices_shown([choice], [page]) == [choice] * given_away, text


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_a_root_pages_links_lead_somewhere(page: str) -> None:
    # What mkdocs holds for the site's pages, for those that it doesn't build.
    links = page_checks.list_linked_pages((ROOT / page).read_text("utf-8"))
    assert [link for link in links if not (ROOT / link[1]).is_file()] == []
