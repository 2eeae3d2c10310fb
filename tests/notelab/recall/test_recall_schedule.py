"""The site's script schedules, judges and reads answers exactly as `shardbook recall` does."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import quickjs

from notelab.errors import NotelabError
from notelab.recall import cards
from notelab.recall.cards import Card
from notelab.recall.history import Review, read_export, schedule, write_export

SCRIPT = Path(__file__).parents[3] / "docs/assets/javascripts/recall-schedule.js"
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
Call = Callable[..., Any]


@pytest.fixture(scope="module")
def script() -> Call:
    """Calls a function of the script with JSON; an error's reason is returned as {"error": …}."""
    context = quickjs.Context()
    context.eval(SCRIPT.read_text("utf-8"))
    context.eval("""globalThis.call = (name, words) => {
        try { return JSON.stringify(shardbookRecall[name](...JSON.parse(words))) ?? "null" }
        catch (error) { return JSON.stringify({ error: error.reason || String(error) }) }
    }""")
    return lambda name, *words: json.loads(context.get("call")(name, json.dumps(words)))


def make_reviews(dice: random.Random) -> list[Review]:
    """Return answers to a card: some within minutes, some after days, some long overdue."""
    at, reviews = NOW - timedelta(days=dice.randint(0, 900)), []
    for _ in range(dice.randint(1, 12)):
        gap = dice.choice([1, 30, 600, 3600, 86_399, 86_400, 200_000, 3_000_000, 30_000_000])
        at += timedelta(milliseconds=dice.randint(1, 1000 * gap))
        reviews.append(Review("a#b", at, dice.randint(1, 4), ""))
    return reviews


def to_json(reviews: list[Review]) -> list[dict[str, Any]]:
    return json.loads(msgspec.json.encode(reviews))


@pytest.mark.parametrize("seed", range(8))
def test_a_card_is_due_at_the_same_millisecond(script: Call, seed: int) -> None:
    dice = random.Random(seed)
    card = Card("a#b", "", "", (1, 1), None)
    for _ in range(150):
        reviews = make_reviews(dice)
        (turn,) = schedule([card], {"a#b": reviews}, NOW)
        milliseconds = script("due", to_json(dice.sample(reviews, len(reviews))))
        assert abs(turn.at.timestamp() * 1000 - milliseconds) < 1, reviews


@pytest.mark.parametrize("expected", ["7 MiB", "16 GB", "108 B", "8 ranks", "976"])
def test_an_answer_is_judged_alike(script: Call, expected: str) -> None:
    right = cards.parse_quantity(expected)
    assert right
    for number in (
        "7", "7.0", "7,34", "7 340 032", "16", "1,6e1", "108", "8", "976", "9.76e2", "x",
    ):  # fmt: skip
        for unit in ("", " B", "MiB", " MB", " gb", " ranks", " bytes.", " kib"):
            typed = cards.parse_quantity(number + unit)
            seen = script("quantity", number + unit)
            assert seen == (typed and {"value": typed.value, "unit": typed.unit}), number + unit
            if typed:
                words = "right" if cards.is_same(typed, right) else "wrong"
                words = "unit" if cards.lacks_unit(typed, right) else words
                assert script("judge", seen, msgspec.to_builtins(right)) == words, number + unit


def test_each_side_reads_the_other_sides_export(script: Call, tmp_path: Path) -> None:
    reviews = make_reviews(random.Random(3))
    file, milliseconds = tmp_path / "one.json", NOW.timestamp() * 1000 + 1e12
    write_export(file, reviews, NOW + timedelta(days=9999))
    assert script("read", file.read_text(), milliseconds) == to_json(reviews)
    file.write_text(script("write", to_json(reviews)))
    assert read_export(file, NOW + timedelta(days=9999)) == reviews
    later = to_json([Review("a#b", NOW, 3, "")])
    assert script("merge", to_json(reviews), to_json(reviews[:1]) + later) == [
        *to_json(reviews), *later,
    ]  # fmt: skip


REVIEW = {"card": "a#b", "at": "2026-01-02T03:04:05.678Z", "grade": 3, "evidence": ""}
EXPORT = {"format": "shardbook-recall", "version": 1, "reviews": [REVIEW]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "json"), ("{", "json"), ("[]", "format"), ("null", "format"), ("{}", "format"),
        (json.dumps(EXPORT | {"version": 2}), "version"),
        (json.dumps(EXPORT | {"version": "1"}), "version"),
        (json.dumps(EXPORT | {"reviews": {}}), "reviews"),
        (json.dumps(EXPORT | {"more": 1}), "reviews"),
        (json.dumps(EXPORT | {"reviews": [REVIEW, REVIEW | {"grade": 5}]}), "answer"),
        (json.dumps(EXPORT | {"reviews": [REVIEW | {"grade": 2.5}]}), "answer"),
        (json.dumps(EXPORT | {"reviews": [REVIEW | {"at": "2026-01-02"}]}), "answer"),
        (json.dumps(EXPORT | {"reviews": [REVIEW | {"at": "2026-13-02T00:00:00Z"}]}), "answer"),
        (json.dumps(EXPORT | {"reviews": [REVIEW | {"card": 1}]}), "answer"),
        (json.dumps(EXPORT | {"reviews": [None]}), "answer"),
        (json.dumps(EXPORT | {"reviews": [REVIEW | {"at": "9999-01-02T00:00:00Z"}]}), "future"),
    ],
)  # fmt: skip
def test_both_refuse_a_bad_export(script: Call, tmp_path: Path, content: str, reason: str) -> None:
    assert script("read", content, NOW.timestamp() * 1000) == {"error": reason}
    (tmp_path / "one.json").write_text(content)
    with pytest.raises(NotelabError):
        read_export(tmp_path / "one.json", NOW)
