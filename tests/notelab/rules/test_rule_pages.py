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


def page(code: str, language: str) -> str:
    ending = "" if language == "en" else f".{language}"
    return (PAGES / f"{code}{ending}.md").read_text("utf-8")


def body(text: str) -> str:
    """Return a page without its front matter and its fenced blocks."""
    plain = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    return re.sub(r"^(`{3,}).*?^\1$", "", plain, flags=re.DOTALL | re.MULTILINE).strip()


def first_paragraph(text: str) -> str:
    return " ".join(body(text).split("\n\n")[1].split())


def find_faults(code: str, language: str, text: str) -> list[str]:
    """Return what is wrong with the form of a rule's page."""
    faults = []
    name = RULES[code]
    if not text.startswith(f'---\ntitle: "{code} {name}"\n---\n\n# {code} {name}\n\n'):
        faults.append("title and heading are not code and name")
    paragraph = first_paragraph(text)
    if not paragraph.endswith(".") or re.search(r"[.!?]\s", paragraph) or len(paragraph) > 100:
        faults.append(f"the first paragraph is not one short sentence: {paragraph}")
    headings = re.findall(r"^#{2,} (.+)$", body(text), re.MULTILINE)
    if headings != SECTIONS[language]:
        faults.append(f"other sections: {headings}")
    example = text.partition(f"## {SECTIONS[language][2]}")[2]
    shown = re.search(r"^```text\n\S+:\d+:\d+ (N\d{3}) .+", example, re.MULTILINE)
    if not shown or shown[1] != code:
        faults.append("the example shows no finding of the rule")
    # The finding, the line that caused it, and the fix.
    if len(re.findall(r"^(`{3,})\w+\n.*?^\1$", example, re.DOTALL | re.MULTILINE)) != 3:
        faults.append("the example has not three blocks")
    return [f"{code}, {language}: {fault}" for fault in faults]


def find_differences(english: str, spanish: str) -> list[str]:
    """Return what is wrong with a rule's page beside its page in the other language."""
    blocks = re.compile(r"^(`{3,}\w+\n.*?)^`{3,}$", re.DOTALL | re.MULTILINE)
    faults = ["another example"] * (blocks.findall(english) != blocks.findall(spanish))
    paragraphs = {part for part in body(english).split("\n\n") if len(part.split()) >= 6}
    return faults + [f"in English: {p}" for p in body(spanish).split("\n\n") if p in paragraphs]


@pytest.mark.parametrize("code", RULES)
def test_a_rules_pages_have_the_form_of_all_and_what_explain_shows(code: str) -> None:
    english, spanish = page(code, "en"), page(code, "es")
    faults = find_faults(code, "en", english) + find_faults(code, "es", spanish)
    faults += find_differences(english, spanish)
    assert not faults, "\n".join(faults)
    for language, text in (("en", english), ("es", spanish)):
        assert explain.summary(code, language) == first_paragraph(text)


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
