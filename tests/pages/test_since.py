""" "Since the pin" is made from what is committed, and quotes what the pages still say."""

import re

import pytest

from notelab.book.discovery import labs_below
from notelab.book.opening import open_session
from notelab.book.workbook import open_labs
from notelab.lab import pins
from notelab.lab.pages import translation_path
from notelab.page.citation import format_citation
from notelab.repin.changes import Place
from notelab.repin.review_order import ReviewReason
from notelab.repin.sentences import quote
from pages import since as page
from pages import since_record as record
from pages.__main__ import main
from pages.blocks import LANGUAGES, ROOT

READING = ROOT / "experiments" / "35-reading-notes"
SENTENCES = [
    (since.source, sentence)
    for since in record.load_data()
    for item in since.reread
    for sentence in item.quotes
]


@pytest.mark.parametrize("name", ["commands.md", "commands.es.md"])
def test_what_repin_is_shown_to_answer_is_what_it_answered(name: str) -> None:
    text = (ROOT / "docs/reference" / name).read_text("utf-8")
    counts = []
    for since in record.load_data():
        kinds, total = since.kinds, sum(since.kinds.values())
        again = sum(item.kind == "edited" and not item.share for item in since.reread)
        carried = kinds["same"] + kinds["moved"]
        counts.append((total, carried, kinds["gone"], kinds["edited"] - again, again))
    megatron = record.load_data()[0].kinds
    total, carried, gone, edited, again = counts[0]
    same, moved = megatron["same"], megatron["moved"]
    shown = f"{total} distinct citations: {carried} carried ({same} same, {moved} moved)\n"
    shown += (
        f"\n{megatron['reformatted']} reformatted: the same in another layout\n…\n{gone} gone: "
    )
    assert shown in text
    reached = total - gone - edited
    reach = round(100 * reached / total)
    (example,) = re.findall(rf"^.*\b{total} cita[^`]*?2\.15\.0[^`]*?\n\n", text, re.M)
    numbers = [int(number) for number in re.findall(r"\d+", example.replace("2.15.0", ""))]
    torch = counts[1]
    not_carried = [total - carried, gone, edited, again, megatron["reformatted"]]
    of_torch = [torch[1], torch[0], *torch[2:]]
    assert numbers == [total, carried, *not_carried, reached, total, reach, *of_torch]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_quoted_still_stands_on_its_page(language: str) -> None:
    lost = []
    texts: dict[str, str] = {}
    for _, sentence in SENTENCES:
        original = ROOT / sentence.page
        place = original if language == "en" else translation_path(original, language)
        # Each by itself: what a block of output holds may look like the end of a block.
        parts = place.read_text("utf-8").split("\n\n")
        text = texts.setdefault(sentence.page, "\n".join(map(quote, parts)))
        words = sentence.text[language].rpartition(" — ")[2]
        if sentence.anchor:
            words = words.partition(". ")[2]
        if words not in text:
            lost.append((place.name, words))
    assert lost == [], "carry again: the sentences have been rewritten since"


@pytest.mark.parametrize("since", record.load_data(), ids=lambda since: since.source)
def test_it_begins_at_the_pin(since: record.Since) -> None:
    assert since.commits[0] == pins.read(since.source, READING / f"{since.source}-sha.txt").commit


def test_what_was_judged_false_is_on_the_list() -> None:
    lost = []
    for judgement in record.load_judged():
        quotes = [
            sentence
            for since in record.load_data()
            if since.source == judgement.source
            for item in since.reread
            for sentence in item.quotes
            if str(item.old) == judgement.cited and judgement.says in sentence.text["en"]
        ]
        if judgement.verdict != "true" or judgement.says:
            listed = {quote.page for quote in quotes}
            lost += [(page, judgement.cited) for page in judgement.pages if page not in listed]
    assert lost == [], "the pages no longer say, or no longer cite, what was judged"


def test_verdicts_are_those_of_the_sentence_and_the_gravest_counts() -> None:
    why = {"en": "", "es": ""}
    first = record.Judged("megatron", "a.py:L1", ["p.md"], "true", why, says="first")
    second = record.Judged("megatron", "a.py:L1", ["p.md"], "false", why, says="second")
    elsewhere = record.Judged("megatron", "b.py:L2-L3", ["p.md"], "partly", why)
    quotes = [record.Quote("p.md", {"en": text}) for text in ("the first", "the second", "a third")]
    one = _cite(Place("a.py", 1, 1), quotes)
    other = _cite(Place("b.py", 2, 3), quotes[:1])
    since = record.Since("megatron", "", "", ("", ""), ("", ""), {}, {}, [one, other])
    counts = page.count_verdicts(since, [first, second, elsewhere])
    assert counts == {"partly": 1, "false": 1, "unread": 1}
    assert page.find_judgement([first, second], one, quotes[1]) is second
    assert page.find_judgement([first, second], other, quotes[1]) is None


def _cite(place: Place, quotes: list[record.Quote]) -> record.ReviewedCitation:
    return record.ReviewedCitation(place, "edited", ReviewReason.CHANGED, [], 0.5, quotes)


def test_quoting_again_gives_what_carrying_gave() -> None:
    books = open_labs(dict.fromkeys(labs_below(ROOT)), open_session(()))
    for since in record.load_data():
        assert record.requote(since, books) == since, (
            f"run `python -m pages since --record {since.source}`"
        )


def test_four_in_five_false_sentences_stand_in_the_first_half() -> None:
    ranks = []  # of each false sentence, a page and what it cites: where it is listed, from 0 to 1
    for since in record.load_data():
        listed = [
            format_citation(item.old.path, item.old.start, item.old.end) for item in since.reread
        ]
        ranks += [
            (listed.index(judged.cited) + 1) / len(listed) if judged.cited in listed else 1
            for judged in record.load_judged()
            if judged.source == since.source and judged.verdict == "false"
            for _ in judged.pages
        ]
    assert len(ranks) >= 15
    early = sum(rank <= 0.5 for rank in ranks)
    assert early >= 0.8 * len(ranks), f"{early} of {len(ranks)}"


def test_a_page_links_lines_at_the_two_commits_and_nowhere_else() -> None:
    commits = {commit for since in record.load_data() for commit in since.commits}
    for language in LANGUAGES:
        linked = re.findall(r"/blob/(\w+)/", page.render_page(language))
        assert linked and set(linked) <= commits


def test_an_unknown_source_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["since", "--record", "jax"]) == 2
    assert "no source 'jax': choose megatron or pytorch" in capsys.readouterr().err
