"""The rules' pages: one a code and language, what `explain` shows and the site serves."""

import re
from pathlib import Path

import pytest

from notelab.codes import RULES
from notelab.commands import explain

PAGES = Path(__file__).resolve().parents[3] / "docs" / "reference" / "rules"
SECTIONS = {
    "en": ["How the rule decides", "Why", "Example", "Fix"],
    "es": ["Cómo decide la regla", "Por qué", "Ejemplo", "Arreglo"],
}
CASES = [(code, language) for code in RULES for language in SECTIONS]


def page(code: str, language: str) -> str:
    ending = "" if language == "en" else f".{language}"
    return (PAGES / f"{code}{ending}.md").read_text("utf-8")


def body(text: str) -> str:
    """Return a page without its front matter and its fenced blocks."""
    plain = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    return re.sub(r"^(`{3,}).*?^\1$", "", plain, flags=re.DOTALL | re.MULTILINE).strip()


@pytest.mark.parametrize(("code", "language"), CASES)
def test_title_and_heading_are_code_and_name(code: str, language: str) -> None:
    text = page(code, language)
    assert text.startswith(f'---\ntitle: "{code} {RULES[code]}"\n---\n\n# {code} {RULES[code]}\n\n')


@pytest.mark.parametrize(("code", "language"), CASES)
def test_the_first_paragraph_is_one_short_sentence(code: str, language: str) -> None:
    paragraph = " ".join(body(page(code, language)).split("\n\n")[1].split())
    assert explain.summary(code, language) == paragraph
    assert paragraph.endswith(".") and not re.search(r"[.!?]\s", paragraph)
    assert len(paragraph) <= 100


@pytest.mark.parametrize(("code", "language"), CASES)
def test_a_page_has_the_four_sections_and_no_more(code: str, language: str) -> None:
    headings = re.findall(r"^#{2,} (.+)$", body(page(code, language)), re.MULTILINE)
    assert headings == SECTIONS[language]


@pytest.mark.parametrize(("code", "language"), CASES)
def test_the_example_shows_a_finding_of_its_rule(code: str, language: str) -> None:
    text = page(code, language)
    example = text[text.index(f"## {SECTIONS[language][2]}") :]
    shown = re.search(r"^```text\n\S+:\d+:\d+ (N\d{3}) .+", example, re.MULTILINE)
    assert shown and shown[1] == code
    # The finding, the line that caused it, and the fix.
    assert len(re.findall(r"^(`{3,})\w+\n.*?^\1$", example, re.DOTALL | re.MULTILINE)) == 3


@pytest.mark.parametrize("code", RULES)
def test_both_languages_show_the_same_example(code: str) -> None:
    blocks = [
        re.findall(r"^(`{3,}\w+\n.*?)^`{3,}$", page(code, language), re.DOTALL | re.MULTILINE)
        for language in SECTIONS
    ]
    assert blocks[0] == blocks[1]


@pytest.mark.parametrize("code", RULES)
def test_no_paragraph_is_left_in_english(code: str) -> None:
    english = {part for part in body(page(code, "en")).split("\n\n") if len(part.split()) >= 6}
    spanish = {part for part in body(page(code, "es")).split("\n\n") if len(part.split()) >= 6}
    assert not english & spanish


def test_every_page_belongs_to_a_rule() -> None:
    expected = {f"{code}{ending}.md" for code in [*RULES, "index"] for ending in ("", ".es")}
    assert {path.name for path in PAGES.iterdir()} == expected


@pytest.mark.parametrize("language", SECTIONS)
def test_the_index_links_every_rule_with_its_sentence(language: str) -> None:
    text = page("index", language)
    ending = "" if language == "en" else f".{language}"
    for code, name in RULES.items():
        row = f"| [{code}]({code}{ending}.md) | {name} | {explain.summary(code, language)} |"
        assert row in text.split("\n")


def test_explain_finds_a_rule_by_code_and_by_name_in_any_case() -> None:
    assert explain.code_of("n208") == explain.code_of("Off-Statement") == "N208"
