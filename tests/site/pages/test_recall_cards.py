"""Recall cards hide their answer until asked: by mouse, by keyboard, by touch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from notelab.recall.history import read_export
from sitelab.pages.recall_cards import TodaysCards
from tests.site.pages.test_every_page import AXE
from tests.site.reader import Reader

PAGE = "theory/01-collectives/"


@pytest.fixture(scope="module")
def touched(browser: Any, served: str) -> Iterator[Reader]:
    reader = Reader(browser, served, viewport={"width": 1440, "height": 900}, has_touch=True)
    yield reader
    reader.close()


@pytest.fixture(params=["", pytest.param("es/", marks=pytest.mark.ci)])
def card(request: pytest.FixtureRequest, touched: Reader) -> Iterator[Any]:
    """The first card of a theory page, in each language, on a screen that takes touch too."""
    yield touched.read(request.param + PAGE).locator("details.question").first
    assert not touched.wrong
    touched.forget()


ASKED: dict[str, Callable[[Any], None]] = {
    "mouse": lambda question: question.click(),
    "touch": lambda question: question.tap(),
    "Enter": lambda question: question.press("Enter"),
    "Space": lambda question: question.press("Space"),
}


def test_a_card_shows_its_answer_when_asked_and_hides_it_again(card: Any) -> None:
    question = card.locator("summary")
    answer = card.locator("> :not(summary)").first
    assert question.is_visible()
    assert not answer.is_visible()
    for way, ask in ASKED.items():
        ask(question)
        assert answer.is_visible(), way
        ask(question)
        assert not answer.is_visible(), way


@pytest.mark.ci
def test_a_card_can_be_reached_with_the_tab_key(card: Any) -> None:
    page = card.page
    card.evaluate("card => card.previousElementSibling.setAttribute('tabindex', '-1')")
    card.evaluate("card => card.previousElementSibling.focus()")
    focused = "card => card.firstElementChild === document.activeElement"
    page.keyboard.press("Tab")
    if not card.evaluate(focused):  # the heading's own permalink comes first
        page.keyboard.press("Tab")
    assert card.evaluate(focused)


@pytest.mark.ci
def test_an_answer_is_tied_to_a_line_that_opens(card: Any) -> None:
    card.locator("summary").click()
    card.locator("a.citation[data-card]").first.focus()
    card.page.locator(".citation-card").wait_for()
    box = card.page.locator(".citation-card").bounding_box()
    assert box is not None
    assert box["height"] > 40


LEFT = [
    pytest.param(settings, marks=pytest.mark.ci)
    for settings in (("", 390), ("", 1440), ("es/", 1440))
]


@pytest.fixture(params=[("es/", 390), *LEFT], scope="module")
def screen(
    request: pytest.FixtureRequest, browser: Any, served: str
) -> Iterator[tuple[Reader, str]]:
    language, width = request.param
    reader = Reader(browser, served, viewport={"width": width, "height": 844})
    yield reader, language
    reader.close()


@pytest.fixture
def reader(screen: tuple[Reader, str]) -> Iterator[Reader]:
    reader, language = screen
    reader.read(language + PAGE)
    yield reader
    assert not reader.wrong
    reader.forget()


def answer(reader: Reader, card: Any, typed: str) -> str:
    """Type a number into an open card; return the card's reply."""
    card.locator("input").fill(typed)
    card.locator("input").press("Enter")
    return str(card.locator(".recall-verdict").inner_text())


WORDS = {
    "en": ("Right.", "Not that.", "again in", {"7 MB": "It is more.", "8 MiB": "It is less."}),
    "es": ("Correcto.", "No es eso.", "otra vez en", {"7 MB": "Es más.", "8 MiB": "Es menos."}),
}


def test_a_typed_number_is_checked_before_the_answer_shows(reader: Reader) -> None:
    right, wrong, later, hints = WORDS[reader.page.locator("html").get_attribute("lang") or ""]
    card = reader.page.locator("details.question[data-recall$='#gathered']")
    body = card.locator("> p:not(.recall-verdict)").first
    card.locator("summary").click()
    assert card.locator("input").is_visible() and not body.is_visible()
    assert "GiB" in answer(reader, card, "a lot") and not body.is_visible()
    assert "MiB" in answer(reader, card, "7") and not body.is_visible()  # asks for the unit
    assert later not in card.locator("summary").inner_text()  # and grades nothing
    grades = card.locator(".recall-grades button:visible")
    for typed in ("7 MiB", "7.34e6 B", "7 340 032 B"):
        assert answer(reader, card, typed) == right, typed
        assert body.is_visible() and grades.count() == 4
        card.locator("summary").click()
        card.locator("summary").click()  # opened anew, it asks anew
        assert not body.is_visible()
    for typed, hint in hints.items():
        reply = answer(reader, card, typed)
        assert reply.startswith(f"{wrong} {hint}") and not body.is_visible(), typed
        assert later not in card.locator("summary").inner_text()  # it may still be known
        assert answer(reader, card, "7 MiB") == right
        assert grades.count() == 2  # no "good" after a wrong number
        card.locator("summary").click()
        card.locator("summary").click()
    answer(reader, card, "7 MB")
    assert answer(reader, card, "8 MB").startswith(wrong)
    assert body.is_visible() and grades.count() == 0
    assert f"{later} 1 min" in card.locator("summary").inner_text()  # it was wrong twice


def test_a_grade_is_remembered_until_the_card_is_due(reader: Reader) -> None:
    later = WORDS[reader.page.locator("html").get_attribute("lang") or ""][2]
    name = "details.question[data-recall$='#latency']"
    reader.page.locator(f"{name} summary").click()
    reader.page.locator(f"{name} .recall-grades button").nth(2).click()
    reader.page.reload(wait_until="load")
    assert f"{later} 10 min" in reader.page.locator(f"{name} .recall-when").inner_text()
    reader.page.evaluate("""name => {
        const kept = JSON.parse(localStorage.getItem("shardbook.recall"));
        for (const review of kept.reviews) review.evidence = "other";
        localStorage.setItem("shardbook.recall", JSON.stringify(kept));
    }""")
    reader.page.reload(wait_until="load")
    due = reader.page.locator(f"{name} .recall-when").inner_text()
    assert due.startswith(("stale", "caducada"))


@pytest.mark.ci
def test_a_history_that_is_none_is_set_aside_and_the_cards_work(reader: Reader) -> None:
    reader.page.evaluate("localStorage.setItem('shardbook.recall', '[torn')")
    reader.page.reload(wait_until="load")
    card = reader.page.locator("details.question").first
    card.locator("summary").click()
    card.locator(".recall-grades button").nth(3).click()
    assert "8" in card.locator(".recall-when").inner_text()
    assert reader.page.evaluate("localStorage.getItem('shardbook.recall.corrupt')") == "[torn"


def test_an_own_answer_to_a_problem_is_kept_and_compared_when_the_answer_opens(
    reader: Reader,
) -> None:
    """Both languages keep it in one place."""
    field = reader.page.locator("textarea.recall-own").first
    verdict = reader.page.locator("textarea.recall-own + .recall-verdict").first
    field.fill("1,75 GiB, then 0.0377 s")
    assert verdict.text_content() == ""
    reader.page.locator("details.example > summary").first.click()
    for typed, count in {"0.0377 s": "1", "1.79 GiB, 38 ms": "0", "1.879 GB 37650 us": "2"}.items():
        field.fill(typed)
        words = verdict.inner_text()
        assert f": {count} of 2" in words or f": {count} de 2" in words, typed
    reader.page.reload(wait_until="load")
    assert field.input_value() == "1.879 GB 37650 us"
    kept = reader.page.evaluate("Object.keys(JSON.parse(localStorage['shardbook.problems']))")
    assert kept == ["theory/01-collectives/#1"]


def list_kept(reader: Reader) -> list[dict[str, Any]]:
    """Return the answers that the browser keeps."""
    text = reader.page.evaluate("localStorage.getItem('shardbook.recall')")
    return json.loads(text)["reviews"] if text else []


@pytest.fixture
def sitting(screen: tuple[Reader, str]) -> Iterator[Reader]:
    """The page of today's cards, in a browser that was never asked a card."""
    reader, language = screen
    reader.read(f"{language}cards/")
    yield reader
    assert not reader.wrong
    reader.forget()


SHOWN = ".recall-item:not([hidden]) details"


def test_todays_cards_are_asked_one_after_another_by_keyboard(sitting: Reader) -> None:
    page = sitting.page
    assert page.locator(SHOWN).count() == 1
    assert "20" in page.locator(".recall-status").inner_text()
    first = page.locator(SHOWN).get_attribute("data-recall")
    page.locator(f"{SHOWN} summary").focus()
    page.keyboard.press("3")  # a closed card is not graded
    assert list_kept(sitting) == []
    for _ in range(20):
        page.keyboard.press("Enter")
        if page.locator(f"{SHOWN} form").count():
            page.keyboard.press("Tab")
            page.keyboard.press("4")  # a number, no grade
            page.keyboard.press("Enter")
            if page.locator(f"{SHOWN}.recall-asks").count():  # it lacks a unit, or is wrong once
                page.keyboard.press("End")
                page.keyboard.type(" B")
                page.keyboard.press("Enter")
            if page.locator(f"{SHOWN}.recall-asks").count():
                page.keyboard.press("Enter")
            page.locator("#recall-sitting > .recall-grades button").first.press("Enter")
        else:
            page.keyboard.press("3")
    kept = list_kept(sitting)
    assert kept[0]["card"] == first and kept[0]["grade"] == 3
    assert len(kept) == len({review["card"] for review in kept}) == 20
    assert page.locator(SHOWN).count() == 0
    assert "10 min" in page.locator(".recall-status").inner_text() or "1 min" in (
        page.locator(".recall-status").inner_text()
    )
    page.keyboard.press("Enter")  # the focus is on "Ask more"
    assert page.locator(SHOWN).count() == 1
    assert page.locator(SHOWN).get_attribute("data-recall") not in {r["card"] for r in kept}


def test_what_is_due_comes_first_and_is_counted_in_the_header(sitting: Reader) -> None:
    page = sitting.page
    assert not page.locator(".recall-due").is_visible()
    cards = page.locator(".recall-item details").all()
    cards = [cards[9], cards[5]]
    names = [card.get_attribute("data-recall") for card in cards]
    at, evidence = "2026-01-02T00:00:00.000Z", cards[1].get_attribute("data-evidence")
    reviews = [
        {"card": card, "at": at, "grade": 3, "evidence": text}
        for card, text in ((names[0], "other"), (names[1], evidence), ("docs/gone#1", ""))
    ]
    export = {"format": "shardbook-recall", "version": 1, "reviews": reviews}
    file = {"name": "a.json", "mimeType": "application/json", "buffer": json.dumps(export).encode()}
    page.locator("input[type=file]").set_input_files(file)
    page.locator(".recall-due").wait_for()
    assert page.locator(".recall-due").inner_text().startswith("2 ")  # none of a card that is gone
    assert page.locator(SHOWN).get_attribute("data-recall") == names[0]  # stale
    page.locator("#recall-sitting > .recall-grades button").first.click()
    assert page.locator(SHOWN).get_attribute("data-recall") == names[1]
    page.locator(f"{SHOWN} summary").click()
    if page.locator(f"{SHOWN} form").count():
        for _ in range(2):
            answer(sitting, page.locator(SHOWN), "1 TB")
    else:
        page.locator(f"{SHOWN} .recall-grades button").nth(2).click()
    assert page.locator(".recall-due").inner_text().startswith("1 ")
    box = page.locator(".recall-due").bounding_box()
    assert box and box["x"] + box["width"] <= page.viewport_size["width"]
    address = page.url
    page.locator(".recall-due").click()
    assert page.url.split("#")[0] == address


def test_answers_are_exported_and_imported_and_a_bad_file_changes_nothing(
    sitting: Reader, tmp_path: Path
) -> None:
    page = sitting.page
    answers = page.locator(".recall-answers")
    page.locator(f"{SHOWN} summary").click()
    page.locator(f"{SHOWN} .recall-grades button").nth(2).click()
    with page.expect_download() as download:
        answers.locator("button").nth(0).click()
    download.value.save_as(tmp_path / "one.json")
    assert download.value.suggested_filename == "shardbook-recall.json"
    kept = list_kept(sitting)
    exported = read_export(tmp_path / "one.json", datetime.now(UTC))  # as the command reads it
    assert [review.card for review in exported] == [review["card"] for review in kept]
    newer = '{"format": "shardbook-recall", "version": 9}'
    for content, words in {"{": "JSON", "{}": "shardbook-recall", newer: "9"}.items():
        page.locator("input[type=file]").set_input_files(
            {"name": "bad.json", "mimeType": "application/json", "buffer": content.encode()}
        )
        message = answers.locator(".recall-verdict", has_text=words)
        message.wait_for()
        assert "bad.json" in message.inner_text()
        assert list_kept(sitting) == kept
    page.once("dialog", lambda dialog: dialog.accept())
    answers.locator("button").nth(2).click()
    assert list_kept(sitting) == []
    page.locator("input[type=file]").set_input_files(tmp_path / "one.json")
    answers.locator(".recall-verdict", has_text="1").wait_for()
    assert list_kept(sitting) == kept


def test_todays_cards_can_be_read_in_both_palettes_and_link_to_their_pages(
    sitting: Reader, axe: str
) -> None:
    page = sitting.page
    page.locator(f"{SHOWN} summary").click()
    page.evaluate(axe)
    for scheme in ("light", "dark"):
        sitting.use_scheme(scheme)
        include = ["#recall-sitting", ".recall-answers"]
        assert page.evaluate(AXE, [{"include": include}, {}]) == [], scheme
    hrefs = page.eval_on_selector_all(
        "#recall-sitting a", "links => [...new Set(links.map(link => link.href))]"
    )
    own = [href for href in hrefs if href.startswith(sitting.served)]
    assert len(own) > 10
    for href in own:
        assert page.request.get(href).ok, href


@pytest.mark.ci
def test_an_open_card_can_be_read_and_fits_the_screen(reader: Reader, axe: str) -> None:
    page = reader.page
    for name in ("latency", "gathered"):
        page.locator(f"details.question[data-recall$='#{name}'] summary").click()
    card = page.locator("details.question[data-recall$='#gathered']")
    for _ in range(2):
        answer(reader, card, "7 GB")
    page.evaluate(axe)
    for scheme in ("light", "dark"):
        reader.use_scheme(scheme)
        assert page.evaluate(AXE, [{"include": ["details.question[open]"]}, {}]) == [], scheme
    buttons = page.locator("details[open] .recall-grades button:visible").all()
    assert len(buttons) == 4  # the second card is graded already
    for button in buttons:
        box = button.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= page.viewport_size["width"]


def test_a_card_that_its_page_lost_leaves_the_page_of_cards(tmp_path: Path) -> None:
    shown = tmp_path / "cards.html"
    place: Any = SimpleNamespace(
        url="cards/",
        meta={"mark": "m"},
        file=SimpleNamespace(src_uri="docs/cards.md", abs_dest_path=shown),
    )
    page: Any = SimpleNamespace(url="a/", title="A", file=SimpleNamespace(src_uri="docs/a.md"))
    cards = TodaysCards()

    def build(html: str) -> str:
        cards.add(html, page, "en")
        shown.write_text(cards.add("<h2>Cards</h2>", place, "en"))
        cards.fill()
        return shown.read_text()

    first = build('<details data-recall="a#1"><a href="#b">b</a></details>')
    assert 'href="../a/#b"' in first
    assert build('<details data-recall="a#1"><a href="#b">b</a></details>') == first
    assert "data-recall" not in build("<p>None.</p>")
